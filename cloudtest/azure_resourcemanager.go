package cloudtest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/azurename"
)

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

func (a *Azure) serveManager(w http.ResponseWriter, r *http.Request, host string) {
	host = strings.ToLower(host)
	path, list := strings.CutSuffix(r.URL.Path, "/listClusterUserCredential")
	call := Call{Service: "arm", Action: "managedClusters", Host: host, Parameters: map[string]string{"id": path}}
	if list {
		call.Action = "listClusterUserCredential"
	}
	c := &azureAPI{azure: a, w: w, r: r}
	if !c.begin(call) {
		return
	}
	a.mu.Lock()
	cluster, known := a.clusters[strings.ToLower(path)]
	a.mu.Unlock()
	identity, ok := a.bearer(bearerOf(r), a.managementAudiences(host)...)
	switch {
	case !ok:
		w.Header().Set("Www-Authenticate",
			`Bearer authorization_uri="https://login.microsoftonline.com/", error="invalid_token", error_description="The access token is invalid."`)
		c.fail(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	case r.URL.Query().Get("api-version") == "":
		c.fail(http.StatusBadRequest, "MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")
	case known && !a.sameTenant(identity.Tenant, cluster.Tenant):
		c.fail(http.StatusUnauthorized, "InvalidAuthenticationTokenTenant",
			"The access token is from the wrong issuer 'https://sts.windows.net/%s/'. It must match the tenant 'https://sts.windows.net/%s/' associated with this subscription. Please use the authority (URL) 'https://login.windows.net/%s' to get the token.", identity.Tenant, cluster.Tenant, cluster.Tenant)
	case known && !oneOf(cluster.Users, identity.ClientID), !known && list:
		action := "read"
		if list {
			action = "listClusterUserCredential/action"
		}
		c.fail(http.StatusForbidden, "AuthorizationFailed",
			"The client '%s' with object id '%s' does not have authorization to perform action 'Microsoft.ContainerService/managedClusters/%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
			identity.ClientID, a.objectID(identity), action, path)
	case !known:
		name := path[strings.LastIndexByte(path, '/')+1:]
		c.fail(http.StatusNotFound, "ResourceNotFound",
			"The Resource 'Microsoft.ContainerService/managedClusters/%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", name)
	case list && r.Method == http.MethodPost:
		c.answer(map[string]any{"kubeconfigs": cluster.kubeconfigs()})
	case !list && r.Method == http.MethodGet:
		c.answer(cluster.resource(path))
	default:
		c.fail(http.StatusMethodNotAllowed, "HttpMethodNotAllowed", "The method is not allowed.")
	}
}

func (a *Azure) objectID(identity AzureIdentity) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.app(identity.Tenant, identity.ClientID).objectID
}

func (c AzureCluster) creating() bool { return strings.EqualFold(c.ProvisioningState, "Creating") }

// resource returns the managed cluster with only the properties that clients
// need to reach it.
func (c AzureCluster) resource(id string) map[string]any {
	properties := map[string]any{"provisioningState": firstOf(c.ProvisioningState, "Succeeded"),
		"powerState": map[string]string{"code": "Running"}, "enableRBAC": true}
	if !c.WithoutEntra {
		properties["aadProfile"] = map[string]any{"managed": true, "enableAzureRBAC": true, "tenantID": c.Tenant}
	}
	if !c.creating() {
		fqdn := c.FQDN
		if fqdn == "" && len(c.Addresses) > 0 {
			if u, err := url.Parse(c.Addresses[0]); err == nil {
				fqdn = u.Hostname()
			}
		}
		properties["fqdn"] = fqdn
		if c.PrivateFQDN != "" {
			properties["privateFQDN"] = c.PrivateFQDN
		}
	}
	name := id[strings.LastIndexByte(id, '/')+1:]
	return map[string]any{"id": id, "location": "westeurope", "name": name,
		"type": "Microsoft.ContainerService/ManagedClusters", "properties": properties}
}

type kubeconfigResult struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// kubeconfigs returns the kubeconfigs of a cluster with Microsoft Entra
// integration. They name a command instead of a credential.
func (c AzureCluster) kubeconfigs() []kubeconfigResult {
	results := []kubeconfigResult{}
	if c.creating() {
		return results
	}
	for _, address := range c.Addresses {
		cluster := map[string]any{"server": address}
		if len(c.CA) > 0 {
			cluster["certificate-authority-data"] = c.CA
		}
		document, _ := yaml.Marshal(map[string]any{ // maps of strings always encode
			"apiVersion": "v1", "kind": "Config", "current-context": "c",
			"clusters": []any{map[string]any{"name": "c", "cluster": cluster}},
			"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
			"users": []any{map[string]any{"name": "u", "user": map[string]any{"exec": map[string]any{
				"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "kubelogin",
				"args": []string{"get-token", "--server-id", azurename.ClusterAudience}}}}},
		})
		results = append(results, kubeconfigResult{"clusterUser", document})
	}
	return results
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
