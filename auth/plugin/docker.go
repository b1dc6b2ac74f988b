package plugin

import (
	"context"
	"io"
	"strings"

	"github.com/workloadid/workloadid/auth"
)

// DockerNotFound is what a docker credential helper prints on standard output, with an exit status other than 0, for
// registries that it has no credentials for. docker and go-containerregistry go on without credentials then; any other text
// counts as a failure. (It is a constant of docker-credential-helpers, compared whole.)
const DockerNotFound = "credentials not found in native keychain"

// ReadDockerServer reads the request of get and erase: the registry as docker names it, with or without https:// and a path.
// It returns what auth.RegistryHost accepts.
func ReadDockerServer(ctx context.Context, in io.Reader) (string, error) {
	content, err := Read(ctx, in)
	if err != nil {
		return "", err
	}
	server := strings.TrimSpace(string(content))
	if server == "" {
		return "", misconfigured("write the registry's host to standard input", "no registry was asked for")
	}
	if strings.Contains(server, "@") { // a password may stand before it
		return "", misconfigured("name the registry by its host", "the registry's address holds a user name")
	}
	host, err := auth.RegistryHost(strings.TrimPrefix(server, "https://"))
	if err != nil {
		return "", err
	}
	return host, nil
}

// EncodeDockerCredentials returns the answer to get.
func EncodeDockerCredentials(server, username, password string) ([]byte, error) {
	if password == "" {
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Message: "there is no password to hand out"}
	}
	return marshal(struct{ ServerURL, Username, Secret string }{server, username, password})
}
