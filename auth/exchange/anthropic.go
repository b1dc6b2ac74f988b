package exchange

import (
	"context"
	"net/http"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	// AnthropicFederationRuleAnnotation names the federation rule that lets a
	// ServiceAccount act as its service account.
	AnthropicFederationRuleAnnotation = annotationPrefix + "anthropic-federation-rule-id"
	// AnthropicServiceAccountAnnotation names the service account of
	// Anthropic's organization that a ServiceAccount acts as.
	AnthropicServiceAccountAnnotation = annotationPrefix + "anthropic-service-account-id"
)

// NewAnthropic returns a [Provider] for Anthropic's API. A federation rule of
// the organization has to know the cluster's issuer or its keys, and the
// subject system:serviceaccount:<namespace>:<name>. The rule also names the
// audience, which you choose.
//
// A rule names one service account. With an empty federationRuleID each
// ServiceAccount needs [AnthropicFederationRuleAnnotation]. Otherwise all
// ServiceAccounts that the rule matches share the rule and its service account.
// Anthropic then only compares [AnthropicServiceAccountAnnotation] with it,
// which separates no tenants.
//
// Set workspace_id in Parameters where the rule has several workspaces. Calls
// of the API carry the header "anthropic-beta: oauth-2025-04-20". An answer
// without a lifetime counts as valid for AssumedLifetime.
//
// Anthropic accepts each token once, unless the issuer there has check_jti off.
// So the provider repeats no request: a lost answer is [auth.ErrUnavailable],
// and the next call sends a new token. The provider refuses an
// [auth.TokenRequest], which repeats its token.
func NewAnthropic(organizationID, federationRuleID, kubernetesAudience string) *Provider {
	p := &Provider{
		Name: "anthropic", Endpoint: "https://api.anthropic.com/v1/oauth/token", Grant: GrantJWTBearer, JSONBody: true,
		KubernetesAudience: kubernetesAudience, AssumeBearer: true, AssumedLifetime: 10 * time.Minute,
		Parameters:          map[string]string{"organization_id": organizationID},
		AnnotatedParameters: map[string]string{"federation_rule_id": AnthropicFederationRuleAnnotation},
		service:             anthropic{oauthForm{name: "Anthropic", ownAudience: true}},
	}
	if federationRuleID != "" {
		p.Parameters["federation_rule_id"] = federationRuleID
		p.AnnotatedParameters = map[string]string{"service_account_id": AnthropicServiceAccountAnnotation}
	}
	return p
}

// anthropic accepts each token once.
type anthropic struct{ oauthForm }

func (anthropic) headers() map[string]string {
	return map[string]string{"Anthropic-Beta": "oauth-2025-04-20,oidc-federation-2026-04-01"}
}

func (anthropic) checkOptions(opts *provider.Options) error {
	if !opts.TokenRepeats {
		return nil
	}
	return self.Misconfigured("name the ServiceAccount instead, so that each exchange has a new token",
		"Anthropic takes each token once, and a TokenRequest repeats it").About("auth.WithServiceAccount")
}

func (anthropic) send(ctx context.Context, client *http.Client, r *tokenRequest) (transport.Answer, error) {
	return transport.SendOnce(ctx, client, func() (*http.Request, error) { return r.make(ctx) })
}

func (anthropic) reason(status int) (provider.Reason, string) {
	switch status {
	case http.StatusBadRequest:
		return auth.ErrMisconfigured, ""
	case http.StatusUnauthorized:
		return auth.ErrDenied, ""
	}
	return "", ""
}
