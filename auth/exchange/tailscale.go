package exchange

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/workloadid/workloadid/internal/oauth"
)

// TailscaleClientIDAnnotation names the client ID of the federated identity as which a ServiceAccount works.
const TailscaleClientIDAnnotation = annotationPrefix + "tailscale-client-id"

// NewTailscale returns a Provider for Tailscale's API. A federated identity of the tailnet has to know the cluster's issuer and the
// subject system:serviceaccount:<namespace>:<name>. The audience of the ServiceAccount's token is api.tailscale.com/<client ID>, as
// Tailscale sets it. Each ServiceAccount needs TailscaleClientIDAnnotation.
func NewTailscale() *Provider {
	return &Provider{
		Name: "tailscale", Endpoint: "https://api.tailscale.com/api/v2/oauth/token-exchange", AssumeBearer: true, AssumedLifetime: time.Hour,
		AnnotatedParameters: map[string]string{"client_id": TailscaleClientIDAnnotation},
		protocol: &protocol{name: "Tailscale", parameters: []string{"client_id"},
			audience: "api.tailscale.com/",
			request: func(ctx context.Context, r *tokenRequest) (*http.Request, error) {
				return oauth.NewRequest(ctx, r.endpoint.String(), url.Values{"client_id": {r.parameters["client_id"]}, "jwt": {r.SubjectToken}})
			}},
	}
}
