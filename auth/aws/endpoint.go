package aws

import (
	"net/url"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/awsname"
)

// hostOf returns the host of an endpoint that checkSTSEndpoint has accepted.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || !awsname.IsSTSHost(u.Hostname()) {
		return ""
	}
	return u.Hostname()
}

// isOtherService reports whether the controller has allowed a service other than AWS for these options.
func (p *Provider) isOtherService(opts *auth.Options) bool {
	host, given := strings.CutPrefix(opts.STSEndpoint, "https://")
	host = strings.TrimSuffix(host, "/")
	name, _, _ := cut(host) // without the port
	return given && slices.Contains(p.AllowedSTSHosts, host) && !awsname.IsSTSHost(name)
}

// checkSTSEndpoint accepts the address of an STS endpoint of AWS, or of a host that the controller allows. That
// address gets the ServiceAccount's token.
func checkSTSEndpoint(endpoint string, allowed []string) error {
	u, err := address.Parse("STS endpoint", endpoint, 0)
	switch {
	case err != nil:
		return err
	case slices.Contains(allowed, u.Host), awsname.IsSTSHost(u.Hostname()) && (u.Port() == "" || u.Port() == "443"):
		return nil
	}
	return address.Refuse("STS endpoint", endpoint, "it is not one of AWS STS")
}
