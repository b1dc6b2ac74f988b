// Package address parses the https addresses of settings, tenants and services.
// These hosts receive tokens, so it compares hosts whole and refuses parts in
// which a secret or a look-alike could hide.
package address

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/internal/redact"
)

// maxLength bounds an address, in bytes.
const maxLength = 2048

// Part is a part of a URL that may follow the host.
type Part uint8

// The optional parts. A single slash does not count as a path.
const (
	Path Part = 1 << iota
	Query
)

// Parse returns the URL https://<host>[:<port>] with the allowed parts and no
// others. Its error names the option, and shows neither user information nor
// query and fragment of the address.
func Parse(option, address string, allowed Part) (*url.URL, error) {
	u, problem := parse(address, allowed)
	if problem != "" {
		return nil, Refuse(option, address, problem)
	}
	return u, nil
}

// Refuse returns the error for an address that the option does not accept.
func Refuse(option, address, problem string) error {
	return fmt.Errorf("the %s %q is refused: %s", option, redact.URL(address), problem)
}

func parse(address string, allowed Part) (u *url.URL, problem string) {
	u, err := url.Parse(address)
	switch {
	case len(address) > maxLength:
		return nil, fmt.Sprintf("it is too long, at most %d bytes are allowed", maxLength)
	case !strings.HasPrefix(address, "https://"):
		return nil, "it has to begin with https://"
	case strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }):
		return nil, "it holds invalid characters"
	case strings.Contains(address, "#"):
		return nil, "it holds a fragment"
	case LacksBrackets(address):
		return nil, "an IPv6 address in a URL is in brackets, https://[<address>][:<port>]"
	case err != nil || u.Opaque != "":
		return nil, "it is not a URL"
	case u.User != nil:
		return nil, "it holds a user name"
	case allowed&Query == 0 && (u.RawQuery != "" || u.ForceQuery):
		return nil, "it holds a query"
	case allowed&Path == 0 && u.Path != "" && u.Path != "/":
		return nil, "it holds a path"
	}
	if _, ok := Canonical(u); !ok {
		return nil, "it has no valid host or port"
	}
	return u, ""
}

// LacksBrackets reports whether the host of an https URL is an IPv6 address
// without brackets. url.Parse refuses some of them as an invalid port.
func LacksBrackets(address string) bool {
	host, _, _ := strings.Cut(strings.TrimPrefix(address, "https://"), "/")
	for _, s := range []string{host, host[:max(strings.LastIndex(host, ":"), 0)]} {
		if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() {
			return true
		}
	}
	return false
}

// IsLoopback reports whether a host is this machine: localhost, or an address
// of the loopback interface.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Canonical returns <host>:<port> in the form for comparisons: in lower case,
// with the port 443 if there is none.
func Canonical(u *url.URL) (string, bool) {
	host, ok := canonicalName(u.Hostname())
	port := u.Port()
	if port == "" && !strings.HasSuffix(u.Host, ":") {
		port = "443"
	}
	return host + ":" + port, ok && ValidPort(port)
}

// canonicalName returns the canonical form of an IP address, or a name in lower
// case.
func canonicalName(host string) (string, bool) {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Is6() {
			return "[" + ip.String() + "]", ip.Zone() == "" && !ip.IsUnspecified()
		}
		return ip.String(), !ip.IsUnspecified()
	}
	valid, _ := HostName(host)
	return strings.ToLower(host), valid
}

// HostName reports whether s is a DNS name of one label or more in any case,
// and whether it is in lower case. It runs on every hit of the cache.
func HostName(s string) (valid, lower bool) {
	const maxName, maxLabel = 253, 63
	if s == "" || len(s) > maxName {
		return false, false
	}
	lower = true
	label := 0 // the length of the one at hand
	for i := range len(s) {
		switch c := s[i]; {
		case c-'a' < 26, c-'0' < 10, c == '-' && label > 0:
			label++
		case c-'A' < 26:
			label++
			lower = false
		case c == '.' && label > 0 && label <= maxLabel && s[i-1] != '-':
			label = 0
		default:
			return false, false
		}
	}
	return label > 0 && label <= maxLabel && s[len(s)-1] != '-', lower
}

// ValidPort accepts 1 to 65535 without leading zeros. It runs on every hit of
// the cache.
func ValidPort(s string) bool {
	const maxDigits, maxPort = 5, 65535
	if s == "" || len(s) > maxDigits || s[0] == '0' {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= maxPort
}
