package authtest

import (
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // x5t is defined with it
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
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
	w      http.ResponseWriter
	r      *http.Request
	host   string
	tenant string
	form   url.Values
}

func (a *Azure) serveEntra(w http.ResponseWriter, r *http.Request, host string) {
	e := &entraCall{azure: a, w: w, r: r, host: strings.ToLower(host)}
	var path string
	e.tenant, path, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	call := Call{Service: "entra", Host: host, Parameters: map[string]string{"tenant": e.tenant}}
	switch {
	case path == "oauth2/v2.0/token" && r.Method == http.MethodPost:
		call.Action = "token"
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest)) // a request that is cut short lacks parameters
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

// faultRefusal takes Code for the value of error and finds the number in a Message that begins with AADSTS.
func faultRefusal(f Fault) *entraRefusal {
	e := &entraRefusal{status: f.Status, kind: f.Code, text: f.Message}
	if rest, ok := strings.CutPrefix(f.Message, "AADSTS"); ok {
		_, _ = fmt.Sscanf(rest, "%d", &e.number) // 0 if there is none
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
		description = fmt.Sprintf("AADSTS%d: %s Trace ID: %s Correlation ID: %s Timestamp: %s", refusal.number, refusal.text, trace, correlation, stamp)
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

// directory returns the tenant if the cloud has it.
func (e *entraCall) directory() (*azureTenant, *azurename.Cloud, *entraRefusal) {
	e.azure.mu.Lock()
	defer e.azure.mu.Unlock()
	if !azurename.ValidTenant(e.tenant) {
		return nil, nil, refuseEntra(http.StatusBadRequest, "invalid_request", 900023,
			"Specified tenant identifier '%s' is neither a valid DNS name, nor a valid external domain.", e.tenant)
	}
	environment := e.azure.at(e.host)
	t := e.azure.tenants[strings.ToLower(e.tenant)]
	if t == nil || environment == nil || t.authority != environment.Authorities[0] {
		return nil, nil, refuseEntra(http.StatusBadRequest, "invalid_request", 90002,
			"Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant.", e.tenant)
	}
	return t, environment, nil
}

func (e *entraCall) configuration(fault *Fault) {
	if _, _, refusal := e.directory(); refusal != nil {
		e.fail(fault, refusal)
		return
	}
	base := "https://" + e.host + "/" + e.tenant
	e.azure.sendJSON(e.w, e.r, fault, http.StatusOK, map[string]any{
		"issuer": base + "/v2.0", "token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize",
		"jwks_uri": base + "/discovery/v2.0/keys", "token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt"},
	})
}

func (e *entraCall) token(fault *Fault) {
	tenant, environment, refusal := e.directory()
	if refusal != nil {
		e.fail(fault, refusal)
		return
	}
	identity, refusal := e.authenticate(tenant)
	if refusal == nil {
		identity.Audience, refusal = e.resource(tenant, environment)
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

// resource checks the scope: one resource that the tenant's cloud has.
func (e *entraCall) resource(tenant *azureTenant, environment *azurename.Cloud) (string, *entraRefusal) {
	scope := ""
	for s := range strings.FieldsSeq(e.form.Get("scope")) {
		if s != "openid" && s != "offline_access" && s != "profile" { // clients add them, and they mean nothing here
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
	known := []string{environment.ManagementAudience, "https://" + environment.ManagementHost, azurename.RegistryAudience,
		azurename.ClusterAudience, azurename.DevOpsAudience, azurename.StorageAudience, "https://vault.azure.net"}
	if !slices.Contains(known, strings.TrimSuffix(resource, "/")) {
		return "", refuseEntra(http.StatusBadRequest, "invalid_resource", 500011,
			"The resource principal named %s was not found in the tenant named %s. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You might have sent your authentication request to the wrong tenant.", resource, tenant.name)
	}
	return strings.TrimSuffix(resource, "/"), nil
}

// authenticate finds out which application asks.
func (e *entraCall) authenticate(tenant *azureTenant) (AzureIdentity, *entraRefusal) {
	clientID := e.form.Get("client_id")
	if grant := e.form.Get("grant_type"); grant != "client_credentials" {
		return AzureIdentity{}, refuseEntra(http.StatusBadRequest, "unsupported_grant_type", 70003, "The app requested an unsupported grant type '%s'.", grant)
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
	if e.form.Has("client_secret") {
		if app.secret == "" || e.form.Get("client_secret") != app.secret {
			return identity, refuseEntra(http.StatusUnauthorized, "invalid_client", 7000215,
				"Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '%s'.", clientID)
		}
		return identity, nil
	}
	if e.form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || e.form.Get("client_assertion") == "" {
		return identity, refuseEntra(http.StatusUnauthorized, "invalid_client", 7000218,
			"The request body must contain the following parameter: 'client_assertion' or 'client_secret'.")
	}
	return e.assertion(identity, &app)
}

// assertion judges a JWT: one of an issuer that the application trusts, or one signed with its certificate.
func (e *entraCall) assertion(identity AzureIdentity, app *azureApp) (AzureIdentity, *entraRefusal) {
	malformed := refuseEntra(http.StatusBadRequest, "invalid_request", 50027, "JWT token is invalid or malformed.")
	token, err := jwt.ParseSigned(e.form.Get("client_assertion"), []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.RS384, jose.RS512})
	if err != nil {
		return identity, malformed
	}
	var claims tokenClaims
	if token.UnsafeClaimsWithoutVerification(&claims) != nil {
		return identity, malformed
	}
	if claims.Issuer == app.clientID {
		return identity, e.certificate(token, claims, app)
	}
	if refusal := e.federation(claims, app); refusal != nil {
		return identity, refusal
	}
	if refusal := e.signature(token, claims); refusal != nil {
		return identity, refusal
	}
	identity.Subject = claims.Subject
	return identity, e.validity(claims)
}

// federation looks for the federated credential, and tells which part of none fits.
func (e *entraCall) federation(claims tokenClaims, app *azureApp) *entraRefusal {
	const advice = "Please check your federated identity credential Subject, Audience and Issuer against the presented assertion. https://docs.microsoft.com/en-us/azure/active-directory/develop/workload-identity-federation"
	audience := ""
	if len(claims.Audience) > 0 {
		audience = claims.Audience[0]
	}
	left := app.federated
	keep := func(fits func(FederatedCredential) bool) bool {
		kept := slices.DeleteFunc(slices.Clone(left), func(f FederatedCredential) bool { return !fits(f) })
		if len(kept) > 0 {
			left = kept
		}
		return len(kept) > 0
	}
	refuse := func(number int, part, value string) *entraRefusal {
		return refuseEntra(http.StatusUnauthorized, "invalid_client", number,
			"No matching federated identity record found for presented assertion %s '%s'. %s", part, value, advice)
	}
	switch {
	case len(left) == 0:
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 70025, "The client '%s' has no configured federated identity credentials.", app.clientID)
	case !keep(func(f FederatedCredential) bool { return f.Issuer == claims.Issuer }):
		return refuse(700211, "issuer", claims.Issuer)
	case !keep(func(f FederatedCredential) bool { return strings.EqualFold(f.Subject, claims.Subject) }):
		return refuse(700213, "subject", claims.Subject)
	case !keep(func(f FederatedCredential) bool { return f.Subject == claims.Subject }):
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 7002138,
			"No matching federated identity record found for presented assertion subject '%s'. The subject matches with case-insensitive comparison, but not with case-sensitive comparison. %s", claims.Subject, advice)
	case !keep(func(f FederatedCredential) bool { return slices.Contains(claims.Audience, f.Audience) }):
		return refuse(700212, "audience", audience)
	}
	return nil
}

func (e *entraCall) signature(token *jwt.JSONWebToken, claims tokenClaims) *entraRefusal {
	unreachable := refuseEntra(http.StatusBadRequest, "invalid_request", 90061, "Request to External OIDC endpoint failed.")
	e.azure.mu.Lock()
	issuer := e.azure.issuers[claims.Issuer]
	e.azure.mu.Unlock()
	if issuer == nil {
		return unreachable
	}
	err := issuer.verify(e.r.Context(), token)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSignature):
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 50013, "Assertion failed signature validation. [Reason - The signature is not valid.]")
	case !errors.Is(err, errKeys) || err != errKeys: //nolint:errorlint // bare: the issuer was reached
		return unreachable
	}
	return refuseEntra(http.StatusUnauthorized, "invalid_client", 7000272,
		"The certificate with identifier %s used to sign the federated credential could not be found in the metadata of identity provider %s. Please validate that your Identity Provider's metadata exposes the key used to sign the incoming token.", token.Headers[0].KeyID, claims.Issuer)
}

func (e *entraCall) validity(claims tokenClaims) *entraRefusal {
	now := e.azure.cloud.time()
	from, to := time.Unix(0, 0), time.Unix(0, 0)
	if claims.NotBefore != nil {
		from = claims.NotBefore.Time()
	}
	if claims.Expiry != nil {
		to = claims.Expiry.Time()
	}
	const skew = 5 * time.Minute
	if now.Before(from.Add(-skew)) || !now.Before(to.Add(skew)) {
		const layout = "2006-01-02T15:04:05.0000000Z"
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 700024,
			"Client assertion is not within its valid time range. Current time: %s, assertion valid from %s, expiry time of assertion %s. Review the documentation at https://docs.microsoft.com/azure/active-directory/develop/active-directory-certificate-credentials .",
			now.UTC().Format(layout), from.UTC().Format(layout), to.UTC().Format(layout))
	}
	return nil
}

// certificate judges an assertion that the application has signed itself.
func (e *entraCall) certificate(token *jwt.JSONWebToken, claims tokenClaims, app *azureApp) *entraRefusal {
	thumbprint := ""
	for _, name := range []jose.HeaderKey{"x5t#S256", "x5t"} {
		if s, ok := token.Headers[0].ExtraHeaders[name].(string); ok {
			thumbprint = s
			break
		}
	}
	unknown := refuseEntra(http.StatusUnauthorized, "invalid_client", 700027,
		"The certificate with identifier used to sign the client assertion is not registered on application. [Reason - The key was not found., Please visit the Azure Portal to check the key.]")
	if app.certificate == nil {
		return unknown
	}
	long, short := sha256.Sum256(app.certificate.Raw), sha1.Sum(app.certificate.Raw) //nolint:gosec // x5t is defined with it
	encode := base64.RawURLEncoding.EncodeToString
	key, ok := app.certificate.PublicKey.(*rsa.PublicKey)
	// Clients write it in either alphabet of base64.
	plain := strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(thumbprint)
	if !ok || plain != encode(long[:]) && plain != encode(short[:]) {
		return unknown
	}
	if token.Claims(key, &tokenClaims{}) != nil || claims.Subject != app.clientID ||
		!slices.Contains(claims.Audience, "https://"+e.host+"/"+e.tenant+"/oauth2/v2.0/token") {
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 50013, "Assertion failed signature validation. [Reason - The signature is not valid.]")
	}
	return e.validity(claims)
}
