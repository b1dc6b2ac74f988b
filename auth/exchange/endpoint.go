package exchange

import (
	"errors"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
)

// checkEndpoint accepts the URL of a token endpoint (RFC 6749, section 3.2). The ServiceAccounts' tokens and the client's
// secret go there. The error says what is wrong without repeating the URL.
func checkEndpoint(endpoint string) error {
	_, err := parseEndpoint(endpoint)
	return err
}

func parseEndpoint(endpoint string) (*url.URL, error) {
	const most = 2048
	switch {
	case len(endpoint) > most:
		return nil, errors.New("it is too long")
	case !strings.HasPrefix(endpoint, "https://"):
		return nil, errors.New("it has to begin with https://")
	case strings.ContainsFunc(endpoint, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }):
		return nil, errors.New("it holds characters that have no place in it")
	case strings.Contains(endpoint, "#"):
		return nil, errors.New("it holds a fragment")
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Opaque != "" {
		return nil, errors.New("it is not a URL")
	}
	if u.User != nil {
		return nil, errors.New("it holds a user name")
	}
	if _, ok := canonicalHost(u.Host); !ok {
		return nil, errors.New("it has no valid host")
	}
	return u, nil
}

// checkIssuer accepts an issuer identifier (RFC 8414, section 2).
func checkIssuer(issuer string) error {
	u, err := parseEndpoint(issuer)
	if err != nil {
		return err
	}
	if u.RawQuery != "" || u.ForceQuery {
		return errors.New("it holds a query")
	}
	return nil
}

// canonicalHost returns <host>:<port> in the one form in which hosts are compared, with 443 for no port.
func canonicalHost(host string) (string, bool) {
	if host == "" || strings.ContainsAny(host, "/?#@") {
		return "", false
	}
	const scheme = "https://"
	address, err := auth.ParseClusterAddress(scheme + host)
	if err != nil {
		return "", false
	}
	return strings.TrimPrefix(address, scheme), true
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

// absoluteURI is what RFC 8707, section 2, demands of a resource, and RFC 8693, section 3, of a token type.
func absoluteURI(s string) bool {
	if strings.Contains(s, "#") || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && u.IsAbs() && u.User == nil && (u.Host != "" || u.Opaque != "" || u.Path != "")
}
