package cloudtest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/azurename"
)

// entraLife is the lifetime of access tokens.
const entraLife = time.Hour - time.Second

// entraRefusal is an error of the token endpoint.
type entraRefusal struct {
	status int
	kind   string
	number int
	text   string
}

func refuseEntra(status int, kind string, number int, format string, args ...any) *entraRefusal {
	return &entraRefusal{status, kind, number, fmt.Sprintf(format, args...)}
}

// entraCall is one request to an authority.
type entraCall struct {
	azure  *Azure
	proxy  *AKSTokenProxy // the proxy that received the request, or nil
	w      http.ResponseWriter
	r      *http.Request
	host   string
	tenant string
	form   url.Values
}

func (a *Azure) serveEntra(w http.ResponseWriter, r *http.Request, host string) {
	a.serveEntraBehind(nil, w, r, host)
}

func (a *Azure) serveEntraBehind(proxy *AKSTokenProxy, w http.ResponseWriter, r *http.Request, host string) {
	e := &entraCall{azure: a, proxy: proxy, w: w, r: r, host: strings.ToLower(host)}
	var path string
	e.tenant, path, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	call := Call{Service: "entra", Host: host, Parameters: map[string]string{"tenant": e.tenant}}
	if proxy != nil {
		call.Service = "aks-token-proxy"
	}
	switch {
	case path == "oauth2/v2.0/token" && r.Method == http.MethodPost:
		call.Action = "token"
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest)) // a truncated request lacks parameters
		e.form, _ = url.ParseQuery(string(body))
		for name := range e.form {
			if name != "client_assertion" && name != "client_secret" {
				call.Parameters[name] = e.form.Get(name)
			}
		}
	case path == "v2.0/.well-known/openid-configuration":
		call.Action = "openid-configuration"
	}
	fault, ok := a.cloud.begin(w, r, call, func(f Fault) { e.fail(nil, faultRefusal(f)) })
	if !ok {
		return
	}
	w.Header().Set("Cache-Control", "no-store, no-cache")
	switch call.Action {
	case "token":
		e.token(fault)
	case "openid-configuration":
		e.configuration(fault)
	default:
		http.NotFound(w, r)
	}
}

// faultRefusal uses Code as the value of error. A Message that begins with
// AADSTS holds the number.
func faultRefusal(f Fault) *entraRefusal {
	e := &entraRefusal{status: f.Status, kind: f.Code, text: f.Message}
	if rest, ok := strings.CutPrefix(f.Message, "AADSTS"); ok {
		_, _ = fmt.Sscanf(rest, "%d", &e.number) // 0 without a number
		_, e.text, _ = strings.Cut(rest, ": ")
	}
	return e
}

func (e *entraCall) fail(fault *Fault, refusal *entraRefusal) {
	trace, correlation := uuid.NewString(), uuid.NewString()
	stamp := e.azure.cloud.time().UTC().Format("2006-01-02 15:04:05Z")
	e.w.Header().Set("x-ms-request-id", trace)
	description := refusal.text
	if refusal.number != 0 {
		description = fmt.Sprintf("AADSTS%d: %s Trace ID: %s Correlation ID: %s Timestamp: %s", refusal.number, refusal.text,
			trace, correlation, stamp)
	}
	e.azure.sendJSON(e.w, e.r, fault, refusal.status, struct {
		Kind        string `json:"error"`
		Description string `json:"error_description"`
		Codes       []int  `json:"error_codes"`
		Timestamp   string `json:"timestamp"`
		Trace       string `json:"trace_id"`
		Correlation string `json:"correlation_id"`
		URI         string `json:"error_uri"`
	}{refusal.kind, description, []int{refusal.number}, stamp, trace, correlation,
		fmt.Sprintf("https://%s/error?code=%d", e.host, refusal.number)})
}

// directory returns the tenant if the cloud knows it.
func (e *entraCall) directory() (*azureTenant, *entraRefusal) {
	e.azure.mu.Lock()
	defer e.azure.mu.Unlock()
	if !azurename.ValidTenant(e.tenant) {
		return nil, refuseEntra(http.StatusBadRequest, "invalid_request", 900023,
			"Specified tenant identifier '%s' is neither a valid DNS name, nor a valid external domain.", e.tenant)
	}
	environment := e.azure.at(e.host)
	t := e.azure.tenants[strings.ToLower(e.tenant)]
	if t == nil || environment == nil || t.authority != environment.Authorities[0] {
		return nil, refuseEntra(http.StatusBadRequest, "invalid_request", 90002,
			"Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant.", e.tenant)
	}
	return t, nil
}

func (e *entraCall) configuration(fault *Fault) {
	if _, refusal := e.directory(); refusal != nil {
		e.fail(fault, refusal)
		return
	}
	base := "https://" + e.host + "/" + e.tenant
	e.azure.sendJSON(e.w, e.r, fault, http.StatusOK, map[string]any{
		"issuer": base + "/v2.0", "token_endpoint": base + "/oauth2/v2.0/token",
		"authorization_endpoint":                base + "/oauth2/v2.0/authorize",
		"jwks_uri":                              base + "/discovery/v2.0/keys",
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt"},
	})
}

func (e *entraCall) token(fault *Fault) {
	tenant, refusal := e.directory()
	if refusal != nil {
		e.fail(fault, refusal)
		return
	}
	identity, refusal := e.authenticate(tenant)
	if refusal == nil {
		identity.Audience, refusal = e.scope(tenant)
	}
	if refusal != nil {
		e.fail(fault, refusal)
		return
	}
	identity.Claims = e.form.Get("claims")
	identity.Expiration = e.azure.cloud.time().Add(entraLife)
	const life = int(entraLife / time.Second)
	e.azure.sendJSON(e.w, e.r, fault, http.StatusOK, struct {
		Type    string `json:"token_type"`
		Expires int    `json:"expires_in"`
		More    int    `json:"ext_expires_in"`
		Token   string `json:"access_token"`
	}{"Bearer", life, life, e.azure.issue(identity)})
}

// scope returns the one resource that the parameter scope asks for.
func (e *entraCall) scope(tenant *azureTenant) (string, *entraRefusal) {
	scope := ""
	for s := range strings.FieldsSeq(e.form.Get("scope")) {
		if s != "openid" && s != "offline_access" && s != "profile" { // clients add them to every scope
			if scope != "" {
				return "", refuseEntra(http.StatusBadRequest, "invalid_request", 28000,
					"Provided value for the input parameter scope is not valid because it contains more than one resource. Scope %s is not valid.", e.form.Get("scope"))
			}
			scope = s
		}
	}
	resource, ok := strings.CutSuffix(scope, "/.default")
	if !ok {
		return "", refuseEntra(http.StatusBadRequest, "invalid_scope", 1002012,
			"The provided value for scope %s is not valid. Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI).", scope)
	}
	return e.azure.resource(tenant.name, resource)
}

// resource returns a resource of the tenant without a final slash.
func (a *Azure) resource(tenantName, name string) (string, *entraRefusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tenant := a.tenant(tenantName)
	environment := a.at(tenant.authority)
	trimmed := strings.TrimSuffix(name, "/")
	if slices.Contains([]string{environment.ManagementAudience, "https://" + environment.ManagementHost,
		azurename.RegistryAudience,
		azurename.ClusterAudience, azurename.DevOpsAudience, azurename.StorageAudience, "https://vault.azure.net",
		"https://" + environment.GraphHost}, trimmed) || slices.Contains(tenant.resources, trimmed) {
		return trimmed, nil
	}
	return "", refuseEntra(http.StatusBadRequest, "invalid_resource", 500011,
		"The resource principal named %s was not found in the tenant named %s. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You might have sent your authentication request to the wrong tenant.", name, tenant.name)
}

// authenticate returns the identity of the application that sent the request.
func (e *entraCall) authenticate(tenant *azureTenant) (AzureIdentity, *entraRefusal) {
	clientID := e.form.Get("client_id")
	if grant := e.form.Get("grant_type"); grant != "client_credentials" {
		return AzureIdentity{}, refuseEntra(http.StatusBadRequest, "unsupported_grant_type", 70003,
			"The app requested an unsupported grant type '%s'.", grant)
	}
	e.azure.mu.Lock()
	var app azureApp
	known := tenant.apps[strings.ToLower(clientID)]
	if known != nil {
		app = *known
		app.federated = slices.Clone(known.federated)
	}
	e.azure.mu.Unlock()
	if known == nil {
		return AzureIdentity{}, refuseEntra(http.StatusBadRequest, "unauthorized_client", 700016,
			"Application with identifier '%s' was not found in the directory '%s'. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You may have sent your authentication request to the wrong tenant.", clientID, tenant.name)
	}
	identity := AzureIdentity{Tenant: tenant.name, ClientID: app.clientID}
	if e.form.Has("client_secret") && e.proxy == nil {
		if app.secret == "" || e.form.Get("client_secret") != app.secret {
			return identity, refuseEntra(http.StatusUnauthorized, "invalid_client", 7000215,
				"Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '%s'.", clientID)
		}
		return identity, nil
	}
	if e.form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" ||
		e.form.Get("client_assertion") == "" {
		return identity, refuseEntra(http.StatusUnauthorized, "invalid_client", 7000218,
			"The request body must contain the following parameter: 'client_assertion' or 'client_secret'.")
	}
	return e.assertion(identity, &app)
}
