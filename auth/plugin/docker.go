package plugin

import (
	"context"
	"io"
	"net/netip"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/input"
)

// DockerNotFound is the text that a docker credential helper prints to standard
// output for a registry without credentials. The exit status is not 0. docker
// and go-containerregistry then continue without credentials. They treat any
// other text as a failure. docker-credential-helpers defines the text, and
// clients compare all of it.
const DockerNotFound = "credentials not found in native keychain"

// ReadDockerServer reads the request of get and erase. docker names the
// registry with or without https:// and a path. The result is valid for
// [provider.RegistryHost]. It may also be an IPv6 address in brackets, which no
// provider serves.
func ReadDockerServer(ctx context.Context, in io.Reader) (string, error) {
	content, err := read(ctx, in, input.Read)
	if err != nil {
		return "", err
	}
	server := strings.TrimSpace(string(content))
	if server == "" {
		return "", self.Misconfigured("write the registry's host to standard input", "no registry was asked for")
	}
	if strings.Contains(server, "@") { // a password may precede it
		return "", self.Misconfigured("name the registry by its host", "the registry's address holds a user name")
	}
	server = strings.TrimPrefix(server, "https://")
	if address, ok := addressOf(server); ok {
		return address, nil
	}
	host, err := provider.RegistryHost(server)
	if err != nil {
		return "", err
	}
	return host, nil
}

// addressOf returns [<address>][:<port>] of an IPv6 server.
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
