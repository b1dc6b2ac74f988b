package exchange

import "strings"

// DatabricksClientIDAnnotation names the client ID of the service principal
// that a ServiceAccount acts as.
const DatabricksClientIDAnnotation = annotationPrefix + "databricks-client-id"

// NewDatabricks returns a [Provider] for a workspace of Databricks, such as
// https://dbc-1.cloud.databricks.com, or for an account,
// https://accounts.cloud.databricks.com/oidc/accounts/<ID>. A federation policy
// of the service principal has to know the cluster's issuer, the subject
// system:serviceaccount:<namespace>:<name>, and the audience, which you choose.
//
// Each ServiceAccount needs [DatabricksClientIDAnnotation]. A policy of the
// account finds the principal by claims: then delete client_id from
// AnnotatedParameters.
func NewDatabricks(url, kubernetesAudience string) *Provider {
	endpoint := strings.TrimSuffix(url, "/")
	if !strings.Contains(endpoint, "/oidc/accounts/") {
		endpoint += "/oidc"
	}
	return &Provider{
		Name: "databricks", Endpoint: endpoint + "/v1/token", KubernetesAudience: kubernetesAudience,
		DefaultScopes:       []string{"all-apis"},
		AnnotatedParameters: map[string]string{"client_id": DatabricksClientIDAnnotation},
		service:             oauthForm{name: "Databricks", ownAudience: true},
	}
}
