package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	serviceAccountsPath = "/v1/projects/-/serviceAccounts/"
	googleAccounts      = "accounts.google.com"
)

// serveIAMCredentials imitates the IAM Service Account Credentials API, v1,
// without signBlob and signJwt.
func (g *GCP) serveIAMCredentials(w http.ResponseWriter, r *http.Request, host string) {
	email, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, serviceAccountsPath), ":")
	call := Call{Service: "iamcredentials", Action: method, Host: host, Parameters: map[string]string{"email": email}}
	var request iamCredentialsRequest
	bad := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&request)
	g.serveAPI(w, r, call, func() (any, *googleError) {
		caller, err := g.bearer(r, "https://www.googleapis.com/auth/iam")
		switch {
		case err != nil:
			return nil, err
		case r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, serviceAccountsPath):
			return nil, googleNotFound("Method not found.")
		case bad != nil:
			return nil, &googleError{status: http.StatusBadRequest, message: "Invalid JSON payload received."}
		case method == "generateAccessToken":
			return g.generateAccessToken(caller, email, request)
		case method == "generateIdToken":
			return g.generateIDToken(caller, email, request)
		}
		return nil, googleNotFound("Method not found.")
	})
}

type iamCredentialsRequest struct {
	Delegates    []string `json:"delegates"`
	Scope        []string `json:"scope"`
	Lifetime     string   `json:"lifetime"`
	Audience     string   `json:"audience"`
	IncludeEmail bool     `json:"includeEmail"`
}

// mayImpersonate follows the chain of delegates to the account.
func (g *GCP) mayImpersonate(caller GCPIdentity, email string, delegates []string, permission string,
) (GCPServiceAccount, *googleError) {
	chain := []string{}
	for _, name := range delegates {
		chain = append(chain, strings.TrimPrefix(name, "projects/-/serviceAccounts/"))
	}
	var account GCPServiceAccount
	for _, next := range append(chain, email) {
		g.mu.Lock()
		found, ok := g.accounts[next]
		g.mu.Unlock()
		if !ok {
			return found, googleNotFound("Not found; Gaia id not found for email " + next)
		}
		if !caller.isOneOf(found.TokenCreators) && !caller.isOneOf(found.WorkloadIdentityUsers) {
			return found, &googleError{status: http.StatusForbidden,
				message: fmt.Sprintf("Permission '%s' denied on resource (or it may not exist).", permission),
				reason:  "IAM_PERMISSION_DENIED", domain: "iam.googleapis.com",
				metadata: map[string]string{"permission": permission}}
		}
		account, caller = found, GCPIdentity{Members: []string{"serviceAccount:" + next}}
	}
	return account, nil
}

func (g *GCP) generateAccessToken(caller GCPIdentity, email string, request iamCredentialsRequest) (any, *googleError) {
	account, err := g.mayImpersonate(caller, email, request.Delegates, "iam.serviceAccounts.getAccessToken")
	if err != nil {
		return nil, err
	}
	invalid := func(message string) *googleError {
		return &googleError{status: http.StatusBadRequest, message: message}
	}
	if len(request.Scope) == 0 {
		return nil, invalid("Request should contain at least one scope.")
	}
	lifetime := time.Hour
	if request.Lifetime != "" {
		seconds, err := time.ParseDuration(request.Lifetime)
		if err != nil || seconds <= 0 || !strings.HasSuffix(request.Lifetime, "s") {
			return nil,
				invalid(fmt.Sprintf("Invalid value at 'lifetime' (type.googleapis.com/google.protobuf.Duration), %q",
					request.Lifetime))
		}
		lifetime = seconds
	}
	const extended = 12 * time.Hour
	if lifetime > extended || lifetime > time.Hour && !account.ExtendedLifetime {
		return nil, invalid("The access tokens can not have lifetimes of more than 1 hour. Use the Org Policy Constraint " +
			"constraints/iam.allowServiceAccountCredentialLifetimeExtension to extend the lifetime.")
	}
	id := g.serviceAccountIdentity(email, request.Scope, lifetime)
	return map[string]string{"accessToken": g.issue("ya29.c.", id), "expireTime": googleTime(id.Expiration)}, nil
}

func (g *GCP) generateIDToken(caller GCPIdentity, email string, request iamCredentialsRequest) (any, *googleError) {
	if _, err := g.mayImpersonate(caller, email, request.Delegates, "iam.serviceAccounts.getOpenIdToken"); err != nil {
		return nil, err
	}
	if request.Audience == "" {
		return nil, &googleError{status: http.StatusBadRequest, message: "Request should contain an audience."}
	}
	token, err := g.signIDToken(email, request.Audience, request.IncludeEmail)
	if err != nil {
		return nil, &googleError{status: http.StatusInternalServerError, message: err.Error()}
	}
	return map[string]string{"token": token}, nil
}

// googleIssuer signs ID tokens. It publishes its keys at
// https://accounts.google.com, as Google does.
func (g *GCP) googleIssuer() (*Issuer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.googleSign == nil {
		issuer, err := NewIssuer(IssuerConfig{URL: "https://" + googleAccounts})
		if err != nil {
			return nil, err
		}
		issuer.now = g.cloud.time
		g.googleSign = issuer
	}
	return g.googleSign, nil
}

func (g *GCP) signIDToken(email, audience string, withEmail bool) (string, error) {
	issuer, err := g.googleIssuer()
	if err != nil {
		return "", err
	}
	const number = "100000000000000000001" // Google's differs by account
	now := g.cloud.time()
	claims := map[string]any{"iss": issuer.URL(), "aud": audience, "azp": number, "sub": number,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	if withEmail {
		claims["email"], claims["email_verified"] = email, true
	}
	return issuer.Sign(claims)
}

// serveAccounts serves the discovery document and the keys of Google's ID
// tokens, at the paths of a Kubernetes issuer.
func (g *GCP) serveAccounts(w http.ResponseWriter, r *http.Request, host string) {
	issuer, err := g.googleIssuer()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	call := Call{Service: googleAccounts, Action: r.URL.Path, Host: host}
	if _, ok := g.cloud.begin(w, r, call, func(f Fault) { http.Error(w, f.Message, f.Status) }); ok {
		issuer.ServeHTTP(w, r)
	}
}
