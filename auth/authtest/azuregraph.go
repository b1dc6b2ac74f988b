package authtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/azurename"
)

// userAssigned is a managed identity as a resource.
type userAssigned struct {
	id, tenant, clientID string
	readers              []string
}

// SetUserAssignedIdentity makes an identity a managed one with a resource ID,
// /subscriptions/<GUID>/resourceGroups/<name>/providers/Microsoft.ManagedIdentity/userAssignedIdentities/<name>. The identities
// with the client IDs of readers can read it and its federated credentials in Azure Resource Manager and Azure Resource Graph.
// Microsoft Graph then does not show it.
func (a *Azure) SetUserAssignedIdentity(id, tenant, clientID string, readers ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.app(tenant, clientID)
	a.managed[strings.ToLower(id)] = userAssigned{id, tenant, clientID, slices.Clone(readers)}
}

// SetApplicationReaders lets identities read all applications of a tenant in Microsoft Graph (Application.Read.All).
func (a *Azure) SetApplicationReaders(tenant string, clientIDs ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.graphReaders[strings.ToLower(tenant)] = slices.Clone(clientIDs)
}

func (a *Azure) isGraph(host string) bool {
	return a.has(func(c azurename.Cloud) bool { return c.GraphHost != "" && c.GraphHost == host })
}

// federatedOf returns the federated credentials of an identity as property bags.
func (a *Azure) federatedOf(tenant, clientID string) []map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []map[string]any{}
	for i, c := range a.app(tenant, clientID).federated {
		list = append(list, map[string]any{"name": fmt.Sprintf("credential-%d", i+1), "issuer": c.Issuer, "subject": c.Subject,
			"audiences": []string{c.Audience}})
	}
	return list
}

// azureAPI is one request to an API of Azure.
type azureAPI struct {
	azure *Azure
	w     http.ResponseWriter
	r     *http.Request
	fault *Fault
}

// begin returns false if a fault has answered.
func (c *azureAPI) begin(call Call) (ok bool) {
	c.w.Header().Set("x-ms-request-id", uuid.NewString())
	c.fault, ok = c.azure.cloud.begin(c.w, c.r, call, func(f Fault) { c.fail(f.Status, f.Code, "%s", f.Message) })
	return ok
}

func (c *azureAPI) fail(status int, code, format string, args ...any) {
	c.azure.sendJSON(c.w, c.r, c.fault, status,
		map[string]any{"error": map[string]string{"code": code, "message": fmt.Sprintf(format, args...)}})
}

func (c *azureAPI) answer(document any) { c.azure.sendJSON(c.w, c.r, c.fault, http.StatusOK, document) }

// serveGraph is Microsoft Graph, v1.0. It has the federated credentials of an application, by its appId, on one page.
// Expressions (claimsMatchingExpression), delegated permissions and everything else are not imitated.
func (a *Azure) serveGraph(w http.ResponseWriter, r *http.Request, host string) {
	c := &azureAPI{azure: a, w: w, r: r}
	match := regexp.MustCompile(`^/v1\.0/applications\(appId='([^']*)'\)/federatedIdentityCredentials$`).FindStringSubmatch(r.URL.Path)
	call := Call{Service: "graph", Action: r.URL.Path, Host: host}
	if match != nil {
		call.Action, call.Parameters = "federatedIdentityCredentials", map[string]string{"appId": match[1]}
	}
	if !c.begin(call) {
		return
	}
	identity, ok := a.bearer(bearerOf(r), "https://"+host)
	if !ok {
		c.fail(http.StatusUnauthorized, "InvalidAuthenticationToken", "Access token is empty, or not for this audience.")
		return
	}
	a.mu.Lock()
	allowed := oneOf(a.graphReaders[strings.ToLower(identity.Tenant)], identity.ClientID)
	known := false
	if t := a.tenants[strings.ToLower(identity.Tenant)]; t != nil && match != nil {
		known = t.apps[strings.ToLower(match[1])] != nil
		for _, m := range a.managed {
			known = known && !strings.EqualFold(m.clientID, match[1])
		}
	}
	a.mu.Unlock()
	switch {
	case match == nil || r.Method != http.MethodGet:
		c.fail(http.StatusBadRequest, "BadRequest", "Resource not found for the segment '%s'.", r.URL.Path)
	case !allowed:
		c.fail(http.StatusForbidden, "Authorization_RequestDenied", "Insufficient privileges to complete the operation.")
	case !known:
		c.fail(http.StatusNotFound, "Request_ResourceNotFound",
			"Resource '%s' does not exist or one of its queried reference-property objects are not present.", match[1])
	default:
		c.answer(map[string]any{"@odata.context": "https://" + host +
			"/v1.0/$metadata#applications('x')/federatedIdentityCredentials",
			"value": a.federatedOf(identity.Tenant, match[1])})
	}
}

const resourceGraphPath = "/providers/Microsoft.ResourceGraph/resources"

// serveIdentities answers requests to Azure Resource Manager about managed identities, and to Resource Graph. It returns false for
// all others. Resource Graph knows one query only, for the identity with a client ID. Answers have one page.
func (a *Azure) serveIdentities(w http.ResponseWriter, r *http.Request, host string) bool {
	c := &azureAPI{azure: a, w: w, r: r}
	path, list := strings.CutSuffix(r.URL.Path, "/federatedIdentityCredentials")
	query := strings.EqualFold(path, resourceGraphPath)
	if !query && !strings.Contains(strings.ToLower(path), "/providers/microsoft.managedidentity/userassignedidentities/") {
		return false
	}
	call := Call{Service: "arm", Action: "userAssignedIdentities", Host: host, Parameters: map[string]string{"id": path}}
	switch {
	case query:
		call.Action = "resourceGraph"
	case list:
		call.Action = "federatedIdentityCredentials"
	}
	if !c.begin(call) {
		return true
	}
	identity, ok := a.bearer(bearerOf(r), a.managementAudiences(host)...)
	switch {
	case !ok:
		c.fail(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	case r.URL.Query().Get("api-version") == "":
		c.fail(http.StatusBadRequest, "MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")
	case query:
		c.queryIdentities(identity)
	default:
		c.describeIdentity(identity, path, list)
	}
	return true
}

func (a *Azure) managementAudiences(host string) (audiences []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.environments {
		if e.ManagementHost == strings.ToLower(host) {
			audiences = append(audiences, e.ManagementAudience, "https://"+host)
		}
	}
	return audiences
}

func (c *azureAPI) describeIdentity(caller AzureIdentity, path string, list bool) {
	c.azure.mu.Lock()
	m, known := c.azure.managed[strings.ToLower(path)]
	c.azure.mu.Unlock()
	action := "read"
	if list {
		action = "federatedIdentityCredentials/read"
	}
	switch {
	case c.r.Method != http.MethodGet:
		c.fail(http.StatusMethodNotAllowed, "HttpMethodNotAllowed", "The method is not allowed.")
	case known && !c.azure.sameTenant(caller.Tenant, m.tenant):
		c.fail(http.StatusUnauthorized, "InvalidAuthenticationTokenTenant",
			"The access token is from the wrong issuer 'https://sts.windows.net/%s/'. It must match the tenant 'https://sts.windows.net/%s/' associated with this subscription.", caller.Tenant, m.tenant)
	case !known || !oneOf(m.readers, caller.ClientID):
		c.fail(http.StatusForbidden, "AuthorizationFailed",
			"The client '%s' with object id '%s' does not have authorization to perform action 'Microsoft.ManagedIdentity/userAssignedIdentities/%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
			caller.ClientID, c.azure.objectID(caller), action, path)
	case list:
		items := []any{}
		for _, f := range c.azure.federatedOf(m.tenant, m.clientID) {
			name := f["name"]
			delete(f, "name")
			items = append(items, map[string]any{"id": fmt.Sprintf("%s/federatedIdentityCredentials/%s", m.id, name), "name": name,
				"type": "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials", "properties": f})
		}
		c.answer(map[string]any{"value": items})
	default:
		c.answer(map[string]any{"id": m.id, "type": "Microsoft.ManagedIdentity/userAssignedIdentities", "location": "westeurope",
			"properties": map[string]string{"tenantId": m.tenant, "clientId": m.clientID}})
	}
}

// queryIdentities shows only identities that the caller may read.
func (c *azureAPI) queryIdentities(caller AzureIdentity) {
	var request struct {
		Query string `json:"query"`
	}
	body, _ := readBody(c.w, c.r)
	if c.r.Method != http.MethodPost || json.Unmarshal(body, &request) != nil {
		c.fail(http.StatusBadRequest, "BadRequest", "Please provide below info when asking for support.")
		return
	}
	match := regexp.MustCompile(`(?i)^resources \| where type =~ 'microsoft\.managedidentity/userassignedidentities' and properties\.clientId =~ '([0-9a-f-]+)' \| project id$`).FindStringSubmatch(request.Query)
	if match == nil {
		c.fail(http.StatusBadRequest, "BadRequest", "authtest: Resource Graph knows one query only, not this one.")
		return
	}
	data := []any{}
	c.azure.mu.Lock()
	for _, m := range c.azure.managed {
		if strings.EqualFold(m.clientID, match[1]) && oneOf(m.readers, caller.ClientID) &&
			c.azure.tenants[strings.ToLower(m.tenant)] == c.azure.tenants[strings.ToLower(caller.Tenant)] {
			data = append(data, map[string]string{"id": m.id})
		}
	}
	c.azure.mu.Unlock()
	c.answer(map[string]any{"totalRecords": len(data), "count": len(data), "data": data, "facets": []any{},
		"resultTruncated": "false"})
}
