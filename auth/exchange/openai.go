package exchange

import "time"

// OpenAIServiceAccountAnnotation names the service account of OpenAI's project
// that a ServiceAccount acts as.
const OpenAIServiceAccountAnnotation = annotationPrefix + "openai-service-account-id"

// NewOpenAI returns a [Provider] for OpenAI's API. The organization's identity
// provider has to know the cluster's issuer, or its keys, and the audience
// https://api.openai.com/v1. A mapping lets the subject
// system:serviceaccount:<namespace>:<name> act as the service account. Each
// ServiceAccount needs [OpenAIServiceAccountAnnotation]. Set client_id in
// Parameters if the organization requires it.
func NewOpenAI(identityProviderID string) *Provider {
	return &Provider{
		Name: "openai", Endpoint: "https://auth.openai.com/oauth/token", JSONBody: true,
		KubernetesAudience: "https://api.openai.com/v1", AssumeBearer: true, AssumedLifetime: time.Hour,
		Parameters:          map[string]string{"identity_provider_id": identityProviderID},
		AnnotatedParameters: map[string]string{"service_account_id": OpenAIServiceAccountAnnotation},
		service:             oauthForm{name: "OpenAI"},
	}
}
