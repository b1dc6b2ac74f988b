package cloudtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FederationService is a service that exchanges a ServiceAccount's token in a
// form of its own.
type FederationService string

// Services that [Cloud.Federation] imitates.
const (
	FederationAnthropic  FederationService = "anthropic"
	FederationOpenAI     FederationService = "openai"
	FederationDatabricks FederationService = "databricks"
	FederationConfluent  FederationService = "confluent"
	FederationTailscale  FederationService = "tailscale"
	FederationVault      FederationService = "vault"
	FederationOctoSTS    FederationService = "octo-sts"
	FederationQuay       FederationService = "quay"
	FederationDockerHub  FederationService = "docker-hub"
)

// Federation imitates a service outside the clouds that exchanges a
// ServiceAccount's token for a credential of its own. The request must have the
// service's method and path, and exactly its members and headers. Federation
// verifies the token against the issuers that it trusts
// ([Federation.AddIssuer]) and the request against its rules
// ([Federation.AddRule]). Without a rule, it refuses every request, as the real
// service does. The texts of errors are its own.
type Federation struct {
	cloud *Cloud
	form  federationForm
	name  FederationService

	mu      sync.Mutex
	issuers map[string]*oidcProvider
	rules   []FederationRule
	issued  map[string]FederationIdentity
	used    map[string]bool // IDs of tokens
	api     http.Handler
}

// FederationRule lets one subject get a credential.
type FederationRule struct {
	// Issuer, Subject and Audience are claims of the token, compared exactly.
	Issuer, Subject, Audience string
	// Parameters are all parameters of the request besides the token, such as
	// service_account_id. A request with others, more or fewer is refused.
	Parameters map[string]string
}

// FederationIdentity is the identity behind a credential.
type FederationIdentity struct {
	// Subject is the sub claim of the exchanged token.
	Subject string
	// Parameters are the parameters of the request.
	Parameters map[string]string
	// Expiration is the expiry of the credential.
	Expiration time.Time
}

// federationForm describes the request that a service expects, and its answer.
type federationForm struct {
	host, method, path string // a path that begins with * is a suffix
	body               string // form, json, or query with the token in the Authorization header
	token              string // the member with the token
	fixed, headers     map[string]string
	required, optional []string
	user               string // the parameter that is the user name of Basic
	header             map[string]string
	lifetime           time.Duration
	once               bool   // a token is valid for one exchange
	seconds            string // the parameter with the lifetime, 300 to 3600
	known              string // the parameter that a rule must hold, else the request is malformed
	answer             func(token string, seconds int) map[string]any
	refuse             func(status int, code, message string) map[string]any
}

func oauthAnswer(token string, seconds int) map[string]any {
	return map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": seconds}
}

func oauthRefusal(_ int, code, message string) map[string]any {
	return map[string]any{"error": code, "error_description": message}
}

func bareToken(token string, _ int) map[string]any { return map[string]any{"token": token} }

func bareMessage(status int, _, message string) map[string]any {
	return map[string]any{"code": status, "message": message}
}

// federationForms follow the services' documents and SDKs.
func federationForms() map[FederationService]federationForm {
	exchange := func(tokenType string) map[string]string {
		return map[string]string{"grant_type": grantTokenExchange, "subject_token_type": tokenType}
	}
	oauth := func(host, path string, form federationForm) federationForm {
		form.host, form.method, form.path, form.lifetime = host, http.MethodPost, path, time.Hour
		form.answer, form.refuse, form.token = oauthAnswer, oauthRefusal, "subject_token"
		return form
	}
	databricks := exchange(tokenTypeJWT)
	databricks["scope"] = "all-apis"
	return map[FederationService]federationForm{
		FederationOpenAI: oauth("auth.openai.com", "/oauth/token", federationForm{body: "json", fixed: exchange(tokenTypeJWT),
			required: []string{"identity_provider_id", "service_account_id"}, optional: []string{"client_id"}}),
		FederationDatabricks: oauth("dbc-1.cloud.databricks.com", "/oidc/v1/token",
			federationForm{body: "form", fixed: databricks,
				optional: []string{"client_id"}}),
		FederationConfluent: oauth("api.confluent.cloud", "/sts/v1/oauth2/token",
			federationForm{body: "form", fixed: exchange(tokenTypeJWT),
				required: []string{"identity_pool_id"}}),
		FederationDockerHub: oauth("identity.docker.com", "/oauth/token",
			federationForm{body: "form", fixed: exchange(tokenTypeIDToken),
				required: []string{"connection_id", "expires_in"}, seconds: "expires_in"}),
		FederationAnthropic: {host: "api.anthropic.com", method: http.MethodPost, path: "/v1/oauth/token", body: "json",
			token:    "assertion",
			fixed:    map[string]string{"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
			headers:  map[string]string{"Anthropic-Beta": "oauth-2025-04-20,oidc-federation-2026-04-01"},
			required: []string{"federation_rule_id", "organization_id"},
			optional: []string{"service_account_id", "workspace_id"}, lifetime: 10 * time.Minute,
			once: true, known: "organization_id",
			answer: func(token string, seconds int) map[string]any {
				return map[string]any{"access_token": token, "expires_in": seconds}
			},
			refuse: func(status int, _, message string) map[string]any {
				kind := map[int]string{400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}[status]
				return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}}
			}},
		FederationTailscale: {host: "api.tailscale.com", method: http.MethodPost, path: "/api/v2/oauth/token-exchange",
			body: "form", token: "jwt",
			required: []string{"client_id"}, lifetime: time.Hour, answer: oauthAnswer, refuse: bareMessage},
		FederationVault: {host: "vault.example", method: http.MethodPost, path: "*/login", body: "json", token: "jwt",
			required: []string{"role"}, header: map[string]string{"X-Vault-Namespace": "namespace"}, lifetime: time.Hour,
			answer: func(token string, seconds int) map[string]any {
				return map[string]any{"request_id": "r-1",
					"auth": map[string]any{"client_token": token, "lease_duration": seconds, "mfa_requirement": nil}}
			},
			refuse: func(_ int, _, message string) map[string]any {
				return map[string]any{"request_id": "r-1", "errors": []string{message}}
			}},
		FederationOctoSTS: {host: "octo-sts.dev", method: http.MethodGet, path: "/sts/exchange", body: "query",
			required: []string{"scope", "identity"}, lifetime: time.Hour, answer: bareToken, refuse: bareMessage},
		FederationQuay: {host: "quay.io", method: http.MethodGet, path: "/oauth2/federation/robot/token", body: "query",
			user:     "robot",
			lifetime: time.Hour, answer: bareToken, refuse: bareMessage},
	}
}

// Federation returns a service. It serves its production host from the first
// call on (Vault: vault.example). It panics if the name is not one of the
// constants.
func (c *Cloud) Federation(name FederationService) *Federation {
	form, ok := federationForms()[name]
	if !ok {
		panic("cloudtest: unknown service " + string(name))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.federations[name]; f != nil {
		return f
	}
	f := &Federation{cloud: c, form: form, name: name, issuers: map[string]*oidcProvider{},
		issued: map[string]FederationIdentity{}, used: map[string]bool{}}
	if c.federations == nil {
		c.federations = map[FederationService]*Federation{}
	}
	c.federations[name] = f
	c.services = append([]service{{at: func(host string) bool {
		return host == form.host
	}, serve: f.serve}}, c.services...)
	return f
}

// AddIssuer makes the service trust an issuer's tokens. fetch gets the issuer's
// documents.
func (f *Federation) AddIssuer(issuer string, fetch *http.Client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.issuers[issuer] = &oidcProvider{issuer: issuer, fetch: fetch}
}

// AddRule adds a rule.
func (f *Federation) AddRule(rule FederationRule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rule)
}

// SetAPI serves all other paths of the host, for a client of the service's API.
// Its requests carry credentials: see [Federation.Identity].
func (f *Federation) SetAPI(api http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.api = api
}

// Identity returns the identity behind a credential. It returns false for a
// credential that the service did not issue, or that has expired.
func (f *Federation) Identity(token string) (FederationIdentity, bool) {
	now := f.cloud.time()
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := f.issued[token]
	return id, ok && now.Before(id.Expiration)
}

func (f *Federation) serve(w http.ResponseWriter, r *http.Request, host string) {
	f.mu.Lock()
	api := f.api
	f.mu.Unlock()
	if api != nil && r.URL.Path != f.form.path {
		api.ServeHTTP(w, r)
		return
	}
	members, problem := f.read(w, r)
	call := Call{Service: string(f.name), Action: "token", Host: host, Parameters: maps.Clone(members)}
	delete(call.Parameters, "") // the token
	send := func(fault *Fault, status int, document map[string]any) {
		body, err := json.Marshal(document)
		if err != nil {
			panic(err) // strings and numbers
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req-1")
		fault.send(w, r, f.cloud.closing, status, body)
	}
	fault, ok := f.cloud.begin(w, r, call, func(fault Fault) {
		send(nil, fault.Status, f.form.refuse(fault.Status, fault.Code, fault.Message))
	})
	if !ok {
		return
	}
	if problem != "" {
		send(fault, http.StatusBadRequest, f.form.refuse(http.StatusBadRequest, "invalid_request", problem))
		return
	}
	token := members[""]
	delete(members, "")
	if problem = f.allow(r.Context(), token, members); problem != "" {
		status := http.StatusUnauthorized
		if f.name == FederationVault || !f.knows(members[f.form.known]) {
			status = http.StatusBadRequest
		}
		send(fault, status, f.form.refuse(status, "invalid_grant", problem))
		return
	}
	send(fault, http.StatusOK, f.issue(token, members))
}

// read returns the parameters. The token has the empty name.
func (f *Federation) read(w http.ResponseWriter, r *http.Request) (members map[string]string, problem string) {
	members = map[string]string{}
	path, suffix := strings.CutPrefix(f.form.path, "*")
	if r.Method != f.form.method || !suffix && r.URL.Path != path || !strings.HasSuffix(r.URL.Path, path) {
		return members, "no such method and path"
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	contentType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch f.form.body {
	case "json":
		if contentType != "application/json" || json.NewDecoder(r.Body).Decode(&members) != nil {
			return members, "the body is not a JSON object of strings"
		}
	default:
		if err := r.ParseForm(); err != nil ||
			f.form.body == "form" && (contentType != "application/x-www-form-urlencoded" || len(r.URL.Query()) > 0) {
			return members, "the body is not a form"
		}
		for name, values := range r.Form {
			if len(values) > 1 {
				return members, "a parameter is there more than once: " + name
			}
			members[name] = values[0]
		}
	}
	if problem = f.takeToken(r, members); problem != "" {
		return members, problem
	}
	for header, name := range f.form.header {
		if value := r.Header.Get(header); value != "" {
			members[name] = value
		}
	}
	return members, f.checkMembers(r, members)
}

func (f *Federation) takeToken(r *http.Request, members map[string]string) (problem string) {
	given := r.Header.Get("Authorization")
	switch {
	case f.form.token != "":
		if given != "" {
			return "the Authorization header is not for this request"
		}
		members[""] = members[f.form.token]
		delete(members, f.form.token)
	case f.form.user != "":
		raw, ok := strings.CutPrefix(given, "Basic ")
		decoded, err := base64.StdEncoding.DecodeString(raw)
		user, token, found := strings.Cut(string(decoded), ":")
		if !ok || err != nil || !found {
			return "the Authorization header is not Basic"
		}
		members[f.form.user], members[""] = user, token
	default:
		token, ok := strings.CutPrefix(given, "Bearer ")
		if !ok {
			return "the Authorization header holds no bearer token"
		}
		members[""] = token
	}
	return ""
}

func (f *Federation) checkMembers(r *http.Request, members map[string]string) string {
	for name, want := range f.form.headers {
		if r.Header.Get(name) != want {
			return "the header is missing or wrong: " + name
		}
	}
	for name, want := range f.form.fixed {
		if members[name] != want {
			return "the member is missing or wrong: " + name
		}
		delete(members, name)
	}
	for _, name := range f.form.required {
		if members[name] == "" {
			return "the member is missing: " + name
		}
	}
	if n, err := strconv.Atoi(members[f.form.seconds]); f.form.seconds != "" && (err != nil || n < 300 || n > 3600) {
		return "the member is out of range: " + f.form.seconds
	}
	known := slices.Concat([]string{"", f.form.user}, f.form.required, f.form.optional,
		slices.Collect(maps.Values(f.form.header)))
	for name := range members {
		if !slices.Contains(known, name) {
			return "the member is unknown: " + name
		}
	}
	return ""
}

// allow verifies the token and looks for a rule.
func (f *Federation) allow(ctx context.Context, token string, parameters map[string]string) (problem string) {
	parsed, claims, err := readToken(token)
	if err != nil {
		return "the token is not a JWT"
	}
	f.mu.Lock()
	issuer, rules := f.issuers[claims.Issuer], f.rules
	f.mu.Unlock()
	now := f.cloud.time()
	switch {
	case issuer == nil:
		return "the issuer is not trusted: " + claims.Issuer
	case issuer.verify(ctx, parsed) != nil:
		return "the signature of the token cannot be verified"
	case claims.Expiry == nil || !now.Before(claims.Expiry.Time()):
		return "the token has expired"
	case claims.NotBefore != nil && now.Add(time.Minute).Before(claims.NotBefore.Time()):
		return "the token is not valid yet"
	}
	problem = "no rule matches the subject " + claims.Subject
	for _, rule := range rules {
		switch {
		case rule.Issuer != claims.Issuer || rule.Subject != claims.Subject:
		case !claims.Audience.Contains(rule.Audience):
			problem = fmt.Sprintf("a rule has this subject and the audience %q, but the token has %q", rule.Audience,
				claims.Audience)
		case !maps.Equal(rule.Parameters, parameters):
			problem = "a rule has this subject, but the request differs in " + strings.Join(differing(rule.Parameters,
				parameters), ", ")
		default:
			return f.use(claims.ID)
		}
	}
	return problem
}

// differing returns the names whose values differ. Values may be secrets of the
// caller.
func differing(a, b map[string]string) []string {
	names := slices.Collect(maps.Keys(a))
	names = slices.AppendSeq(names, maps.Keys(b))
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		x, inA := a[name]
		y, inB := b[name]
		return inA == inB && x == y
	})
}

// knows reports whether a rule holds the value of the parameter that the form
// names in known.
func (f *Federation) knows(value string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.form.known == "" || slices.ContainsFunc(f.rules, func(r FederationRule) bool {
		return r.Parameters[f.form.known] == value
	})
}

func (f *Federation) use(id string) (problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.form.once && f.used[id] {
		return "the token was used before"
	}
	f.used[id] = true
	return ""
}

func (f *Federation) issue(token string, parameters map[string]string) map[string]any {
	_, claims, _ := readToken(token) // was verified
	lifetime := f.form.lifetime
	if seconds, err := strconv.Atoi(parameters[f.form.seconds]); err == nil {
		lifetime = time.Duration(seconds) * time.Second
	}
	credential := string(f.name) + "-" + base64.RawURLEncoding.EncodeToString(random(32))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.issued[credential] = FederationIdentity{Subject: claims.Subject, Parameters: parameters,
		Expiration: f.cloud.time().Add(lifetime)}
	return f.form.answer(credential, int(lifetime/time.Second))
}
