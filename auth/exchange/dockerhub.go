package exchange

import "strings"

// DockerHubConnectionAnnotation names the OIDC connection of the organization
// that gives a ServiceAccount its permissions.
const DockerHubConnectionAnnotation = annotationPrefix + "docker-hub-connection-id"

// NewDockerHub returns a [Provider] for OIDC connections of an organization of
// Docker Hub. The connection has to know the cluster's issuer, the subject
// system:serviceaccount:<namespace>:<name> and the audience
// https://identity.docker.com. Each ServiceAccount needs
// [DockerHubConnectionAnnotation]. [auth.NewRegistryAuthenticator] and
// [auth.NewKeychain] serve Docker Hub with the organization and the issued
// token.
//
// Docker documents connections for GitHub Actions only. It is unproven that
// Docker accepts the issuer of a Kubernetes cluster.
func NewDockerHub(organization string) *Provider {
	return &Provider{
		Name: "docker-hub", Endpoint: "https://identity.docker.com/oauth/token",
		KubernetesAudience:  "https://identity.docker.com",
		SubjectTokenType:    TokenTypeIDToken,
		Parameters:          map[string]string{"expires_in": "3600"},
		AnnotatedParameters: map[string]string{"connection_id": DockerHubConnectionAnnotation},
		AssumeBearer:        true,
		service:             dockerHub{oauthForm{name: "Docker Hub"}, organization},
	}
}

type dockerHub struct {
	oauthForm
	organization string
}

func (d dockerHub) check(p *Provider) error {
	if d.organization == "" || strings.Contains(d.organization, ":") { // a colon would end the user name
		return self.Misconfigured("name the organization of Docker Hub", "%.100q is not an organization", d.organization)
	}
	return d.oauthForm.check(p)
}

func (dockerHub) hosts() []string {
	return []string{"index.docker.io", "docker.io", "registry-1.docker.io"}
}

func (d dockerHub) user(map[string]string) string { return d.organization }
