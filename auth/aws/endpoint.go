package aws

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
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

// checkSTSEndpoint accepts the address of an STS endpoint of AWS, or of a host that the controller allows. Whoever is at
// that address gets the ServiceAccount's token, so the host is compared whole and nothing else may be in the URL.
func checkSTSEndpoint(endpoint string, allowed []string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return errors.New("it is not a URL")
	}
	host := u.Hostname()
	switch {
	case !strings.HasPrefix(endpoint, "https://"):
		return errors.New("it has to begin with https://")
	case u.User != nil:
		return errors.New("it holds a user name")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(endpoint, "#"):
		return errors.New("it holds a query or a fragment")
	case u.Path != "" && u.Path != "/" || u.Opaque != "":
		return fmt.Errorf("it holds a path, %q", u.Path)
	case strings.ContainsAny(endpoint, "\\%@ \t\r\n"):
		return errors.New("it holds characters that have no place in it")
	case slices.Contains(allowed, u.Host):
		return nil
	case u.Host != host && u.Host != host+":443":
		return fmt.Errorf("it names the port %q", u.Port())
	case awsname.IsSTSHost(host):
		return nil
	}
	return fmt.Errorf("%q is not a host of AWS STS", host)
}
