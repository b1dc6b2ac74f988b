package exchange

// ConfluentIdentityPoolAnnotation names the identity pool of Confluent Cloud
// that gives a ServiceAccount its permissions.
const ConfluentIdentityPoolAnnotation = annotationPrefix + "confluent-identity-pool-id"

// NewConfluent returns a [Provider] for Confluent Cloud. Its identity provider
// has to know the cluster's issuer. The filter of the identity pool has to
// accept the subject system:serviceaccount:<namespace>:<name> and the audience,
// which you choose. Each ServiceAccount needs
// [ConfluentIdentityPoolAnnotation].
func NewConfluent(kubernetesAudience string) *Provider {
	return &Provider{
		Name: "confluent", Endpoint: "https://api.confluent.cloud/sts/v1/oauth2/token",
		KubernetesAudience:  kubernetesAudience,
		AnnotatedParameters: map[string]string{"identity_pool_id": ConfluentIdentityPoolAnnotation},
		service:             oauthForm{name: "Confluent Cloud", ownAudience: true},
	}
}
