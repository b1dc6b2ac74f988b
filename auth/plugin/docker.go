package plugin

import (
	"context"
	"io"
	"net/netip"
	"strings"

	"github.com/workloadid/workloadid/auth"
)

// DockerNotFound is what a docker credential helper prints on standard output, with an exit status other than 0, for
// registries that it has no credentials for. docker and go-containerregistry go on without credentials then; any other text
// counts as a failure. (It is a constant of docker-credential-helpers, compared whole.)
const DockerNotFound = "credentials not found in native keychain"

// ReadDockerServer reads the request of get and erase: the registry as docker names it, with or without https:// and a path.
// It returns what auth.RegistryHost accepts, or the address of IPv6 that it is, in brackets: a registry of nobody's here.
func ReadDockerServer(ctx context.Context, in io.Reader) (string, error) {
	content, err := Read(ctx, in)
	if err != nil {
		return "", err
	}
	server := strings.TrimSpace(string(content))
	if server == "" {
		return "", self.Misconfigured("write the registry's host to standard input", "no registry was asked for")
	}
	if strings.Contains(server, "@") { // a password may stand before it
		return "", self.Misconfigured("name the registry by its host", "the registry's address holds a user name")
	}
	server = strings.TrimPrefix(server, "https://")
	if address, ok := addressOf(server); ok {
		return address, nil
	}
	host, err := auth.RegistryHost(server)
	if err != nil {
		return "", err
	}
	return host, nil
}

// addressOf returns [<address>][:<port>] of a server that is given by its address of IPv6.
func addressOf(server string) (string, bool) {
	host, _, _ := strings.Cut(server, "/")
	if address, err := netip.ParseAddrPort(host); err == nil && address.Addr().Is6() {
		return address.String(), true
	}
	inner, begins := strings.CutPrefix(host, "[")
	inner, ends := strings.CutSuffix(inner, "]")
	address, err := netip.ParseAddr(inner)
	if !begins || !ends || err != nil || !address.Is6() {
		return "", false
	}
	return "[" + address.String() + "]", true
}

// EncodeDockerCredentials returns the answer to get.
func EncodeDockerCredentials(server, username, password string) ([]byte, error) {
	if password == "" {
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Message: "there is no password to hand out"}
	}
	return marshal(struct{ ServerURL, Username, Secret string }{server, username, password})
}
