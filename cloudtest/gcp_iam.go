package cloudtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// SetIAMViewers lets members read all workload identity pools and the policies
// of all service accounts, as roles/iam.securityReviewer does.
func (g *GCP) SetIAMViewers(members ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.iamViewers = slices.Clone(members)
}

// stateOf returns the state of a pool or provider as the API shows it.
func stateOf(name string, disabled, deleted bool, now time.Time) map[string]any {
	d := map[string]any{"name": name, "state": "ACTIVE"}
	if disabled {
		d["disabled"] = true
	}
	if deleted {
		const kept = 30 * 24 * time.Hour
		d["state"], d["expireTime"] = "DELETED", googleTime(now.Add(kept))
	}
	return d
}

// serveIAM imitates the IAM API, v1. It has get for pools and their OIDC
// providers, patch for the uploaded keys of a provider, and getIamPolicy for
// service accounts. Policies have no conditions, and projects have no policies.
func (g *GCP) serveIAM(w http.ResponseWriter, r *http.Request, host string) {
	name := strings.TrimPrefix(r.URL.Path, "/v1/")
	email, policy := strings.CutSuffix(strings.TrimPrefix(name, "projects/-/serviceAccounts/"), ":getIamPolicy")
	call := Call{Service: "gcp-iam", Host: host, Action: "workloadIdentityPools.get",
		Parameters: map[string]string{"name": name}}
	permission := "iam.workloadIdentityPools.get"
	switch {
	case policy:
		call.Action, permission = "serviceAccounts.getIamPolicy", "iam.serviceAccounts.getIamPolicy"
	case strings.Contains(name, "/providers/"):
		call.Action, permission = providerPermission(r.Method, name)
	}
	body, _ := readBody(w, r) // a body that is too large is not JSON
	g.serveAPI(w, r, call, func() (any, *googleError) {
		caller, err := g.bearer(r)
		if err != nil {
			return nil, err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.administers(caller, host, name) && (r.Method == http.MethodPatch || !caller.isOneOf(g.iamViewers)) {
			return nil, &googleError{status: http.StatusForbidden, message: "Permission '" + permission +
				"' denied on resource '//" + host + "/" + name +
				"' (or it may not exist).", reason: "IAM_PERMISSION_DENIED", domain: "iam.googleapis.com",
				metadata: map[string]string{"permission": permission}}
		}
		switch {
		case policy && r.Method == http.MethodPost:
			return g.policyOf(email)
		case call.Action == "providers.operations.get":
			return g.operation(name)
		case call.Action == "providers.patch":
			return g.patchProvider(host, name, r.URL.Query().Get("updateMask"), body)
		case !policy && r.Method == http.MethodGet:
			return g.poolOrProvider(host, name)
		}
		return nil, googleNotFound("Method not found.")
	})
}

func (g *GCP) policyOf(email string) (any, *googleError) {
	account, ok := g.accounts[email]
	if !ok {
		return nil, googleNotFound("Unknown service account")
	}
	bindings := []any{}
	for role, members := range map[string][]string{"roles/iam.workloadIdentityUser": account.WorkloadIdentityUsers,
		"roles/iam.serviceAccountTokenCreator": account.TokenCreators} {
		if len(members) > 0 {
			bindings = append(bindings, map[string]any{"role": role, "members": members})
		}
	}
	if len(bindings) == 0 {
		return map[string]any{"etag": "ACAB"}, nil
	}
	return map[string]any{"version": 1, "etag": "BwYAAAAAAAA=", "bindings": bindings}, nil
}

// poolOrProvider finds a pool through its providers.
func (g *GCP) poolOrProvider(host, name string) (any, *googleError) {
	for audience := range g.providers {
		if pool, ok := strings.CutPrefix(audience, "//"+host+"/"+name+"/providers/"); ok && pool != "" {
			return stateOf(name, false, false, g.cloud.time()), nil
		}
	}
	p := g.providers["//"+host+"/"+name]
	if p == nil {
		return nil, googleNotFound("Requested entity was not found.")
	}
	d := stateOf(name, p.config.Disabled, p.config.Deleted, g.cloud.time())
	oidc := map[string]any{"issuerUri": p.config.Issuer}
	if len(p.config.AllowedAudiences) > 0 {
		oidc["allowedAudiences"] = p.config.AllowedAudiences
	}
	if len(p.config.JWKS) > 0 {
		oidc["jwksJson"] = string(p.config.JWKS)
	}
	d["oidc"], d["attributeMapping"] = oidc, map[string]string{"google.subject": "assertion.sub"}
	if p.config.ConditionCEL != "" {
		d["attributeCondition"] = p.config.ConditionCEL
	}
	return d, nil
}

// AddUser creates a user with a refresh token, and returns the application
// default credentials that gcloud writes for users (type authorized_user). In
// IAM policies, the user is user:<email>.
func (g *GCP) AddUser(email string) []byte {
	refresh := "1//" + randomName(40)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.users[refresh] = email
	return googleJSON(map[string]string{"type": "authorized_user", "client_id": "32555940559.apps.googleusercontent.com",
		"client_secret": "not-a-secret", "refresh_token": refresh, "quota_project_id": "my-project"})
}

// serveOAuth imitates Google's authorization server for users: POST /token with
// a refresh token, and /tokeninfo with the e-mail address. It ignores scopes
// and the client secret.
func (g *GCP) serveOAuth(w http.ResponseWriter, r *http.Request, host string) {
	body, _ := readBody(w, r)
	form, _ := url.ParseQuery(string(body)) // a malformed form lacks parameters
	call := Call{Service: "google-oauth", Action: strings.TrimPrefix(r.URL.Path, "/"), Host: host}
	fault, ok := g.cloud.begin(w, r, call, func(f Fault) {
		g.send(w, r, nil, f.Status, googleContentType, googleLine(stsRefusal{Code: f.Code, Description: f.Message}))
	})
	if !ok {
		return
	}
	status, answer := http.StatusBadRequest, any(stsRefusal{Code: "invalid_grant", Description: "Bad Request"})
	g.mu.Lock()
	email := g.users[form.Get("refresh_token")]
	g.mu.Unlock()
	id, known := g.Identity(form.Get("access_token"))
	switch {
	case r.URL.Path == "/token" && form.Get("grant_type") == "refresh_token" && email != "":
		id := GCPIdentity{Members: []string{"user:" + email}, Email: email, Scopes: []string{cloudPlatform},
			Expiration: g.cloud.time().Add(time.Hour)}
		status, answer = http.StatusOK, map[string]any{"access_token": g.issue("ya29.a0", id), "expires_in": 3599,
			"token_type": "Bearer", "scope": cloudPlatform}
	case r.URL.Path == "/tokeninfo" && known:
		info := map[string]string{"scope": strings.Join(id.Scopes, " "), "access_type": "offline"}
		if id.Email != "" {
			info["email"], info["email_verified"] = id.Email, "true"
		}
		status, answer = http.StatusOK, info
	}
	encoded, _ := json.Marshal(answer) // our documents always encode
	g.send(w, r, fault, status, googleContentType, encoded)
}
