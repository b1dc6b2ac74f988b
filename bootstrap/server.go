package bootstrap

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/workloadid/workloadid/internal/address"
)

// serverURL accepts https URLs of API servers. It checks host and port
// strictly, because people paste them into commands, and because an early error
// is better than a timeout.
func serverURL(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	isHTTPS := strings.HasPrefix(server, "https://")
	switch {
	case strings.Contains(server, "@") && (err != nil || u.User != nil): // an error must not repeat a password
		return nil, errors.New("the server has to be https://<host>[:<port>], without a user name or a password")
	case isHTTPS && address.LacksBrackets(server):
		return nil,
			fmt.Errorf("the server has to be https://[<IPv6>][:<port>], with the IPv6 address in brackets, not %.200q", server)
	case err != nil && isHTTPS && !strings.ContainsAny(server, "?#"):
		return nil, errHost(server)
	case err != nil || u.Scheme != "https" || strings.ContainsAny(server, "?#"):
		return nil, fmt.Errorf("the server has to be https://<host>[:<port>], not %.200q", server)
	case !validHost(u.Hostname()) || !validPort(u):
		return nil, errHost(server)
	}
	return u, nil
}

func errHost(server string) error {
	return fmt.Errorf("the server has to be https://<host>[:<port>] with a DNS name or an IP address (IPv6 in brackets) "+
		"and a port of 1 to 65535, not %.200q", server)
}

// maxName is the largest length of a DNS name, in bytes.
const maxName = 253

// dnsName also accepts underscores, which some local names have. If the last
// label has only digits, the name is a mistyped IP address.
var (
	dnsName = regexp.MustCompile(
		`\A[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?\z`)
	allDigits = regexp.MustCompile(`(?:\A|\.)[0-9]+\.?\z`)
)

// validHost refuses IPv6 zones, because they are local to one machine.
func validHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == ""
	}
	return len(host) <= maxName && dnsName.MatchString(host) && !allDigits.MatchString(host)
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Host + ":443"
	}
	return u.Host
}
