package exchange

import "time"

// OpenAIServiceAccountAnnotation names the service account of OpenAI's project
// as which a ServiceAccount works.
const OpenAIServiceAccountAnnotation = annotationPrefix + "openai-service-account-id"

// NewOpenAI returns a [Provider] for OpenAI's API. The organization's identity
// provider has to know the cluster's issuer, or its keys, and the audience
// https://api.openai.com/v1; a mapping lets the subject
// system:serviceaccount:<namespace>:<name> be the service account. Each
// ServiceAccount needs [OpenAIServiceAccountAnnotation]. Parameters takes
// client_id where the organization asks for one.
func NewOpenAI(identityProviderID string) *Provider {
	return &Provider{
		Name: "openai", Endpoint: "https://auth.openai.com/oauth/token", JSONBody: true,
		KubernetesAudience: "https://api.openai.com/v1", AssumeBearer: true, AssumedLifetime: time.Hour,
		Parameters:          map[string]string{"identity_provider_id": identityProviderID},
		AnnotatedParameters: map[string]string{"service_account_id": OpenAIServiceAccountAnnotation},
		service:             oauthForm{name: "OpenAI"},
	}
}
