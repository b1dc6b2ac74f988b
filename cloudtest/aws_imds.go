package cloudtest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// serveIMDS answers at http://169.254.169.254/metadata/.
func (a *Azure) serveIMDS(w http.ResponseWriter, r *http.Request, host string) {
	query := r.URL.Query()
	call := Call{Service: "imds", Action: "token", Host: host,
		Parameters: map[string]string{"resource": query.Get("resource"), "client_id": query.Get("client_id")}}
	asked := r.Header.Get("Metadata") == "true"
	if !asked {
		call.Action = "probe"
	}
	fail := func(fault *Fault, status int, kind, description string) {
		a.sendJSON(w, r, fault, status, map[string]string{"error": kind, "error_description": description})
	}
	fault, ok := a.cloud.begin(w, r, call, func(f Fault) { fail(nil, f.Status, f.Code, f.Message) })
	if !ok {
		return
	}
	a.mu.Lock()
	machine := a.machine
	a.mu.Unlock()
	id := query.Get("client_id")
	switch {
	case r.URL.Path != "/metadata/identity/oauth2/token":
		http.NotFound(w, r)
	case !asked:
		fail(fault, http.StatusBadRequest, "invalid_request", "Required metadata header not specified")
	case query.Get("api-version") == "" || query.Get("resource") == "":
		fail(fault, http.StatusBadRequest, "invalid_request", "Required query variable 'resource' is missing")
	case machine == nil || id != "" && !strings.EqualFold(id, machine.clientID):
		fail(fault, http.StatusBadRequest, "invalid_request", "Identity not found")
	default:
		resource, refusal := a.resource(machine.tenant, query.Get("resource"))
		if refusal != nil {
			fail(fault, refusal.status, refusal.kind, fmt.Sprintf("AADSTS%d: %s", refusal.number, refusal.text))
			return
		}
		a.sendManagedToken(w, r, fault, machine, resource)
	}
}

// sendManagedToken writes numbers as strings, like the metadata service.
func (a *Azure) sendManagedToken(w http.ResponseWriter, r *http.Request, fault *Fault, machine *azureTenantClient,
	resource string) {
	const life = 24 * 60 * 60
	expiry := a.cloud.time().Add(life * time.Second)
	token := a.issue(AzureIdentity{Tenant: machine.tenant, ClientID: machine.clientID, Audience: resource,
		Expiration: expiry})
	a.sendJSON(w, r, fault, http.StatusOK, map[string]string{
		"access_token": token, "client_id": machine.clientID, "expires_in": strconv.Itoa(life),
		"ext_expires_in": strconv.Itoa(life),
		"expires_on":     strconv.FormatInt(expiry.Unix(), 10), "not_before": strconv.FormatInt(a.cloud.time().Unix(), 10),
		"resource": resource, "token_type": "Bearer",
	})
}
