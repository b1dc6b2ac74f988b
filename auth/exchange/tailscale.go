package exchange

import (
	"context"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/internal/oauth"
)

// TailscaleClientIDAnnotation names the client ID of the federated identity
// that a ServiceAccount acts as.
const TailscaleClientIDAnnotation = annotationPrefix + "tailscale-client-id"

// NewTailscale returns a [Provider] for Tailscale's API. A federated identity
// of the tailnet has to know the cluster's issuer and the subject
// system:serviceaccount:<namespace>:<name>. The audience of the
// ServiceAccount's token is api.tailscale.com/<client ID>, as Tailscale sets
// it. Each ServiceAccount needs [TailscaleClientIDAnnotation].
func NewTailscale() *Provider {
	return &Provider{
		Name: "tailscale", Endpoint: "https://api.tailscale.com/api/v2/oauth/token-exchange", AssumeBearer: true,
		AssumedLifetime:     time.Hour,
		AnnotatedParameters: map[string]string{"client_id": TailscaleClientIDAnnotation},
		service:             tailscale{newOwnForm("Tailscale", "client_id")},
	}
}

type tailscale struct{ ownForm }

func (tailscale) sends(Grant) fields { return fieldsOfBearer } // Tailscale answers in the form of OAuth

func (tailscale) audiences(c *config, sa *corev1.ServiceAccount) ([]string, error) {
	clientID, err := c.parameters[0].valueFor(sa)
	return []string{"api.tailscale.com/" + clientID}, err
}

func (tailscale) request(ctx context.Context, r *tokenRequest) (*http.Request, error) {
	return oauth.NewRequest(ctx, r.endpoint.String(),
		url.Values{"client_id": {r.parameters["client_id"]}, "jwt": {r.SubjectToken}})
}
