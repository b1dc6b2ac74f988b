package cloudtest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/azurename"
)

const (
	acrRefreshLife = 3 * time.Hour
	acrAccessLife  = 75 * time.Minute
	acrUser        = "00000000-0000-0000-0000-000000000000"
	acrAdvice      = "authentication required, visit https://aka.ms/acr/authorization for more information."
)

// acrError is the form of a registry's errors.
type acrError struct {
	Errors []acrErrorItem `json:"errors"`
}

type acrErrorItem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  any    `json:"detail,omitempty"`
}

func (a *Azure) serveRegistry(w http.ResponseWriter, r *http.Request, host string) {
	host = strings.ToLower(host)
	actions := map[string]string{"/oauth2/exchange": "exchange", "/oauth2/token": "token"}
	call := Call{Service: "acr", Action: actions[r.URL.Path], Host: host, Parameters: map[string]string{}}
	if strings.HasPrefix(r.URL.Path, "/v2/") {
		call.Action = "v2"
	}
	form := r.URL.Query()
	if r.Method == http.MethodPost && call.Action != "v2" {
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest)) // a truncated request lacks parameters
		form, _ = url.ParseQuery(string(body))
	}
	for _, name := range []string{"grant_type", "service", "tenant", "scope"} {
		call.Parameters[name] = form.Get(name)
	}
	h := w.Header()
	h.Set("Server", "openresty")
	h.Set("X-Ms-Correlation-Request-Id", uuid.NewString())
	h.Set("X-Content-Type-Options", "nosniff")
	fault, ok := a.cloud.begin(w, r, call, func(f Fault) {
		a.sendJSON(w, r, nil, f.Status, acrError{[]acrErrorItem{{Code: f.Code, Message: f.Message}}})
	})
	if !ok {
		return
	}
	a.mu.Lock()
	registry, known := a.registries[host]
	a.mu.Unlock()
	if !known {
		a.sendJSON(w, r, fault, http.StatusNotFound,
			acrError{[]acrErrorItem{{Code: "NAME_UNKNOWN", Message: "the registry does not exist"}}})
		return
	}
	switch call.Action {
	case "exchange":
		a.exchangeForRegistry(w, r, fault, host, registry, form)
	case "token":
		a.tokenOfRegistry(w, r, fault, host, form)
	case "v2":
		a.registryContent(w, r, fault, host, registry)
	default:
		http.NotFound(w, r)
	}
}

func (a *Azure) unauthorized(w http.ResponseWriter, r *http.Request, fault *Fault, detail any) {
	a.sendJSON(w, r, fault, http.StatusUnauthorized, acrError{[]acrErrorItem{{"UNAUTHORIZED", acrAdvice, detail}}})
}

// exchangeForRegistry accepts access tokens of Entra for registries and for
// Azure Resource Manager.
func (a *Azure) exchangeForRegistry(w http.ResponseWriter, r *http.Request, fault *Fault, host string,
	registry AzureRegistry, form url.Values) {
	audiences := []string{azurename.RegistryAudience}
	a.mu.Lock()
	for _, e := range a.environments {
		if azurename.IsRegistry(host, e.RegistrySuffix) {
			audiences = append(audiences, e.ManagementAudience, "https://"+e.ManagementHost)
		}
	}
	a.mu.Unlock()
	identity, ok := a.bearer(form.Get("access_token"), audiences...)
	tenant := form.Get("tenant")
	if r.Method != http.MethodPost || !ok || form.Get("grant_type") != "access_token" || form.Get("service") != host ||
		!a.sameTenant(identity.Tenant, registry.Tenant) || tenant != "" && !a.sameTenant(tenant, registry.Tenant) ||
		!oneOf(registry.Pull, identity.ClientID) {
		a.unauthorized(w, r, fault, nil)
		return
	}
	identity.Audience, identity.Expiration = host, a.cloud.time().Add(acrRefreshLife)
	a.sendJSON(w, r, fault, http.StatusOK, map[string]string{"refresh_token": a.issueRefreshToken(identity)})
}

// tokenOfRegistry accepts a refresh token as a parameter, or as the password of
// the user for refresh tokens.
func (a *Azure) tokenOfRegistry(w http.ResponseWriter, r *http.Request, fault *Fault, host string, form url.Values) {
	refresh := form.Get("refresh_token")
	if user, password, ok := r.BasicAuth(); ok && user == acrUser {
		refresh = password
	}
	identity, ok := a.bearer(refresh, host)
	if !ok || form.Get("service") != host {
		a.unauthorized(w, r, fault, nil)
		return
	}
	identity.Audience, identity.Expiration = "access "+host, a.cloud.time().Add(acrAccessLife)
	a.sendJSON(w, r, fault, http.StatusOK, map[string]string{"access_token": a.issue(identity)})
}

func (a *Azure) registryContent(w http.ResponseWriter, r *http.Request, fault *Fault, host string,
	registry AzureRegistry) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if _, ok := a.bearer(bearerOf(r), "access "+host); !ok {
		challenge := fmt.Sprintf(`Bearer realm="https://%s/oauth2/token",service=%q`, host, host)
		if repository, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/"); ok {
			challenge += fmt.Sprintf(",scope=%q", "repository:"+repository+":pull")
		}
		w.Header().Set("Www-Authenticate", challenge)
		a.unauthorized(w, r, fault, nil)
		return
	}
	if registry.Handler != nil {
		registry.Handler.ServeHTTP(w, r)
		return
	}
	a.sendJSON(w, r, fault, http.StatusOK, map[string]string{})
}
