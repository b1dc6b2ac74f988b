package exchange

import "strings"

// DockerHubConnectionAnnotation names the OIDC connection of the organization whose rights a ServiceAccount has.
const DockerHubConnectionAnnotation = annotationPrefix + "docker-hub-connection-id"

// NewDockerHub returns a Provider for OIDC connections of an organization of Docker Hub. The connection has to know the cluster's
// issuer, the subject system:serviceaccount:<namespace>:<name> and the audience https://identity.docker.com. Each ServiceAccount
// needs DockerHubConnectionAnnotation. auth.NewRegistryAuthenticator and auth.NewKeychain serve Docker Hub with the organization and
// the issued token.
//
// Docker documents connections for GitHub Actions only: that a Kubernetes issuer is accepted is unproven.
func NewDockerHub(organization string) *Provider {
	var problem error
	if organization == "" || strings.Contains(organization, ":") { // a colon would end the user name
		problem = self.Misconfigured("name the organization of Docker Hub", "%.100q is not an organization", organization)
	}
	return &Provider{
		Name: "docker-hub", Endpoint: "https://identity.docker.com/oauth/token", KubernetesAudience: "https://identity.docker.com",
		SubjectTokenType:    TokenTypeIDToken,
		Parameters:          map[string]string{"expires_in": "3600"},
		AnnotatedParameters: map[string]string{"connection_id": DockerHubConnectionAnnotation},
		AssumeBearer:        true,
		protocol: &protocol{name: "Docker Hub", registries: []string{"index.docker.io", "docker.io", "registry-1.docker.io"},
			key: organization, problem: problem, registryUser: func(map[string]string) string { return organization }},
	}
}
