package exchange

import (
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/internal/address"
)

// canonicalHost returns <host>:<port> in the one form in which hosts are compared, with 443 for no port.
func canonicalHost(host string) (string, bool) {
	if strings.ContainsAny(host, "/?") {
		return "", false
	}
	u, err := address.Parse("host", "https://"+host, 0)
	if err != nil {
		return "", false
	}
	return address.Canonical(u)
}

func canonicalHosts(hosts []string) ([]string, error) {
	canonical := make([]string, 0, len(hosts)+1)
	for _, host := range hosts {
		c, ok := canonicalHost(host)
		if !ok {
			return nil, self.Misconfigured("use <host> or <host>:<port>", "%.300q is not a host", host)
		}
		canonical = append(canonical, c)
	}
	return canonical, nil
}

// parseEndpoint accepts the URL of a token endpoint (RFC 6749, section 3.2), which gets the ServiceAccounts' tokens and the
// client's secret.
func parseEndpoint(endpoint string) (*url.URL, error) {
	return address.Parse("token endpoint", endpoint, address.Path|address.Query)
}
