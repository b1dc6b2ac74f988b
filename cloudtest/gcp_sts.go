package cloudtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// WorkloadIdentityProvider is a provider of a workload identity pool that
// trusts an issuer.
type WorkloadIdentityProvider struct {
	// Issuer is the issuer's URL, as in the iss claim.
	Issuer string
	// Fetch gets the issuer's documents, such as Issuer.HTTPClient.
	Fetch *http.Client
	// JWKS holds uploaded keys. They replace Fetch.
	JWKS []byte
	// AllowedAudiences are the audiences that tokens may have. Empty: the
	// provider's full resource name, with or without "https:".
	AllowedAudiences []string
	// Condition is the attribute condition. Nil accepts every token of the
	// issuer.
	Condition func(claims map[string]any) bool
	// ConditionCEL is Condition in CEL, as the IAM API shows it. It is not
	// evaluated.
	ConditionCEL string
	// Disabled and Deleted providers refuse tokens like missing providers.
	Disabled, Deleted bool
	// Admins are the members that may read the provider and upload keys
	// (roles/iam.workloadIdentityPoolAdmin).
	Admins []string
}

// poolProvider is the provider behind an audience of the exchange.
type poolProvider struct {
	config    WorkloadIdentityProvider
	trust     *oidcProvider
	audiences []string
	// members returns the names of a subject in IAM policies.
	members func(claims tokenClaims) []string
}

// SetWorkloadIdentityProvider creates a provider,
// projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>,
// or replaces it.
func (g *GCP) SetWorkloadIdentityProvider(name string, config WorkloadIdentityProvider) {
	universe := g.universeDomain()
	resource := "//iam." + universe + "/" + name
	p := &poolProvider{config: config, trust: newPoolTrust(config), audiences: config.AllowedAudiences}
	if len(p.audiences) == 0 {
		p.audiences = []string{resource, "https:" + resource}
	}
	pool, _, _ := strings.Cut("//iam."+universe+"/"+name, "/providers/")
	p.members = func(claims tokenClaims) []string {
		return []string{"principal:" + pool + "/subject/" + claims.Subject, "principalSet:" + pool + "/*"}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.providers[resource] = p
}

// RemoveWorkloadIdentityProvider removes a provider. Access tokens stay valid,
// as they do at Google.
func (g *GCP) RemoveWorkloadIdentityProvider(name string) {
	resource := "//iam." + g.universeDomain() + "/" + name
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.providers, resource)
}

// SetGKEIdentityNamespace makes the workload identity pool of a project,
// <project>.svc.id.goog, trust one of its GKE clusters. number is the number of
// the project. The issuer may be any URL. In GKE it is the URL of the cluster.
func (g *GCP) SetGKEIdentityNamespace(project, number, location, cluster string, issuer string, fetch *http.Client) {
	universe := g.universeDomain()
	pool := project + ".svc.id.goog"
	audience := fmt.Sprintf("identitynamespace:%s:https://container.%s/v1/projects/%s/locations/%s/clusters/%s",
		pool, universe, project, location, cluster)
	config := WorkloadIdentityProvider{Issuer: issuer, Fetch: fetch}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.providers[audience] = &poolProvider{config: config, trust: newPoolTrust(config), audiences: []string{pool},
		members: func(claims tokenClaims) []string {
			namespace, name, _ := strings.Cut(strings.TrimPrefix(claims.Subject, "system:serviceaccount:"), ":")
			resource := "//iam." + universe + "/projects/" + number + "/locations/global/workloadIdentityPools/" + pool
			return []string{
				"principal:" + resource + "/subject/ns/" + namespace + "/sa/" + name,
				"principalSet:" + resource + "/*",
				"serviceAccount:" + pool + "[" + namespace + "/" + name + "]",
			}
		}}
}

func newPoolTrust(config WorkloadIdentityProvider) *oidcProvider {
	trust := &oidcProvider{issuer: config.Issuer, fetch: config.Fetch}
	if len(config.JWKS) > 0 || config.Fetch == nil {
		trust.keys = &jose.JSONWebKeySet{}
		_ = json.Unmarshal(config.JWKS, trust.keys) // Google does not check uploaded keys
		trust.fetch = &http.Client{Transport: handlerTransport{}}
	}
	return trust
}

// stsRefusal is an error of OAuth 2.0, without nesting.
type stsRefusal struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
	internal    bool
}

func refuseExchange(code, format string, args ...any) *stsRefusal {
	return &stsRefusal{Code: code, Description: fmt.Sprintf(format, args...)}
}

func (g *GCP) serveSTS(w http.ResponseWriter, r *http.Request, host string) {
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	parsed := r.ParseForm()
	call := Call{Service: "gcp-sts", Action: "token", Host: host, Parameters: map[string]string{
		"audience": r.PostForm.Get("audience"), "scope": r.PostForm.Get("scope")}}
	fault, ok := g.cloud.begin(w, r, call, func(f Fault) {
		g.send(w, r, nil, f.Status, googleContentType, googleLine(stsRefusal{Code: f.Code, Description: f.Message}))
	})
	if !ok {
		return
	}
	if r.URL.Path != "/v1/token" || r.Method != http.MethodPost {
		g.send(w, r, fault, http.StatusNotFound, "text/html; charset=UTF-8",
			[]byte("<!DOCTYPE html>\n<title>Error 404 (Not Found)!!1</title>\n"))
		return
	}
	answer, refused := map[string]any(nil), refuseExchange("invalid_request", "Request body cannot be parsed.")
	if parsed == nil {
		answer, refused = g.exchange(r)
	}
	switch {
	case refused == nil:
		g.send(w, r, fault, http.StatusOK, googleContentType, googleLine(answer))
	case refused.internal:
		g.send(w, r, fault, http.StatusInternalServerError, googleContentType,
			(&googleError{status: http.StatusInternalServerError, message: "Internal error encountered."}).body())
	default:
		g.send(w, r, fault, http.StatusBadRequest, googleContentType, googleLine(refused))
	}
}

func googleLine(document any) []byte {
	encoded, _ := json.Marshal(document) // our documents always encode
	return encoded
}

// audiencePattern matches names of providers, whether they exist or not.
func (g *GCP) audiencePattern() *regexp.Regexp {
	return regexp.MustCompile(`^(//iam\.` + regexp.QuoteMeta(g.universeDomain()) +
		`/projects/[^/]+/locations/[^/]+/workloadIdentityPools/[^/]+/providers/[^/]+|identitynamespace:[^:]+:https://.+)$`)
}

func (g *GCP) exchange(r *http.Request) (map[string]any, *stsRefusal) {
	form := r.PostForm
	for name, want := range map[string]string{
		"grant_type":           "urn:ietf:params:oauth:grant-type:token-exchange",
		"requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
		"subject_token_type":   "urn:ietf:params:oauth:token-type:jwt",
	} {
		if form.Get(name) != want {
			return nil, refuseExchange("invalid_request", "Invalid value for %q.", name)
		}
	}
	audience := form.Get("audience")
	if !g.audiencePattern().MatchString(audience) {
		return nil, refuseExchange("invalid_request", `Invalid value for "audience". `+
			`This value should be the full resource name of the Identity Provider. `+
			`See https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token for the list of possible formats.`)
	}
	if form.Get("scope") == "" {
		return nil, refuseExchange("invalid_scope", "Invalid or missing scope.")
	}
	g.mu.Lock()
	p := g.providers[audience]
	active := p != nil && !p.config.Disabled && !p.config.Deleted
	g.mu.Unlock()
	if !active {
		return nil, refuseExchange("invalid_target", `The target service indicated by the "audience" parameters is invalid. `+
			`This might either be because the pool or provider is disabled or deleted or because it doesn't exist.`)
	}
	claims, refused := g.verify(r, p, form.Get("subject_token"))
	if refused != nil {
		return nil, refused
	}
	return g.federated(p, claims, strings.Fields(form.Get("scope")))
}

// federated issues the token. It expires with the exchanged token, but at the
// latest after an hour.
func (g *GCP) federated(p *poolProvider, claims tokenClaims, scopes []string) (map[string]any, *stsRefusal) {
	const most, less = time.Hour, 2 * time.Second
	lifetime := (min(claims.Expiry.Time().Sub(g.cloud.time()), most) - less).Truncate(time.Second)
	if lifetime <= 0 {
		return nil, &stsRefusal{internal: true} // Google's answer to tokens that expire within seconds
	}
	token := g.issue("ya29.d.", GCPIdentity{Members: p.members(claims), Subject: claims.Subject, Scopes: scopes,
		Expiration: g.cloud.time().Add(lifetime)})
	return map[string]any{
		"access_token":      token,
		"issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
		"token_type":        "Bearer",
		"expires_in":        int(lifetime / time.Second),
	}, nil
}

// verify returns the token service's answer to each fault of a token.
func (g *GCP) verify(r *http.Request, p *poolProvider, subjectToken string) (tokenClaims, *stsRefusal) {
	grant := func(format string, args ...any) *stsRefusal { return refuseExchange("invalid_grant", format, args...) }
	token, claims, err := readToken(subjectToken)
	if err != nil {
		return claims, grant("The ID Token could not be parsed.")
	}
	if claims.Issuer != p.config.Issuer {
		return claims, grant("The issuer in ID Token %s does not match the expected one in config: %s",
			firstOf(claims.Issuer, "null"), p.config.Issuer)
	}
	switch err := p.trust.verify(r.Context(), token); {
	case errors.Is(err, errSignature):
		return claims, grant("Unable to verify the ID Token signature.")
	case err != nil:
		return claims, grant("Error connecting to the given credential's issuer.")
	}
	if !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(p.audiences, a) }) {
		return claims, grant("The audience in ID Token [%s] does not match the expected audience.",
			strings.Join(claims.Audience, ", "))
	}
	const grace = time.Minute
	now := g.cloud.time()
	if claims.IssuedAt == nil || claims.Expiry == nil || now.After(claims.Expiry.Time().Add(grace)) ||
		claims.IssuedAt.Time().After(now.Add(grace)) {
		issued := "null"
		if claims.IssuedAt != nil {
			issued = fmt.Sprint(claims.IssuedAt.Time().Unix())
		}
		return claims, grant("ID Token issued at %s is stale to sign-in.", issued)
	}
	const maxSubject = 127
	if len(claims.Subject) > maxSubject {
		return claims, grant("The size of mapped attribute google.subject exceeds the 127 bytes limit. " +
			"Either modify your attribute mapping or the incoming assertion to produce a mapped attribute that is less than 127 bytes.")
	}
	var all map[string]any
	if token.UnsafeClaimsWithoutVerification(&all) != nil || claims.Subject == "" ||
		p.config.Condition != nil && !p.config.Condition(all) {
		return claims, refuseExchange("unauthorized_client", "The given credential is rejected by the attribute condition.")
	}
	return claims, nil
}
