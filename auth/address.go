package auth

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/internal/redact"
)

// RegistryHost returns the host of an artifact repository, <host>[:<port>][/<path>], in the one form in which hosts are
// compared: in lower case, without the port if that is 443. It refuses what is not a repository: a scheme, user information,
// a query, characters that have no place in a host name.
func RegistryHost(artifactRepository string) (string, error) {
	host := artifactRepository
	if i := strings.IndexByte(host, '/'); i >= 0 {
		host = host[:i]
	}
	name, port := host, ""
	if i := strings.IndexByte(host, ':'); i >= 0 {
		name, port = host[:i], host[i+1:]
		if !validPort(port) {
			return "", badRepository(artifactRepository)
		}
	}
	if port == "443" {
		host = name
	}
	valid, lower := checkHostName(name)
	switch {
	case !valid:
		return "", badRepository(artifactRepository)
	case lower:
		return host, nil
	}
	return strings.ToLower(host), nil
}

func badRepository(repository string) error {
	return misconfigured("use <host>/<path>, without a scheme such as oci:// or https://",
		"%.300q is not an artifact repository", repository)
}

// validHostName is a DNS name of one label or more, in any case.
func validHostName(s string) bool {
	valid, _ := checkHostName(s)
	return valid
}

// checkHostName also tells whether the name is in lower case. It runs on every hit of the cache.
func checkHostName(s string) (valid, lower bool) {
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

func validPort(s string) bool {
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

// ParseClusterAddress returns the canonical form of the address of a Kubernetes API server, https://<host>:<port>[<path>]:
// the host in lower case, the port always there, no slash at the end. It refuses other schemes, user information, queries,
// fragments, and more than 2048 bytes. The scheme may be left out. IPv6 addresses may come with or without brackets; without, no port can follow.
func ParseClusterAddress(address string) (string, error) {
	if isCanonicalName(address) {
		return address, nil
	}
	bad := func(why string) (string, error) {
		return "", misconfigured("use https://<host>:<port>", "the cluster address %q is refused: %s", redact.URL(address), why)
	}
	if len(address) > maxAddress {
		return bad(fmt.Sprintf("it has %d bytes, at most %d are allowed", len(address), maxAddress))
	}
	rest, ok := cutScheme(address)
	if !ok {
		return bad("the scheme has to be https")
	}
	if ip, err := netip.ParseAddr(strings.TrimSuffix(rest, "/")); err == nil && ip.Is6() {
		rest = "[" + ip.String() + "]"
	}
	u, err := url.Parse("https://" + rest)
	switch {
	case err != nil:
		return bad("it is not a URL")
	case u.User != nil:
		return bad("it holds a user name")
	case u.RawQuery != "" || u.ForceQuery:
		return bad("it holds a query")
	case strings.Contains(rest, "#"):
		return bad("it holds a fragment")
	case strings.ContainsAny(rest, "\\% \t\r\n"):
		return bad("it holds characters that have no place in it")
	}
	host, ok := canonicalHost(u.Hostname())
	if !ok {
		return bad("it has no valid host")
	}
	port := u.Port()
	if port == "" && !strings.HasSuffix(u.Host, ":") {
		port = "443"
	}
	if !validPort(port) {
		return bad("it has no valid port")
	}
	path := strings.TrimRight(u.Path, "/")
	if strings.Contains(path, "//") || strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./") {
		return bad("its path is not clean")
	}
	return "https://" + host + ":" + port + path, nil
}

// maxAddress is what a cached credential holds of an object's own, in bytes, as maxCAData.
const maxAddress = 2048

func cutScheme(address string) (string, bool) {
	const scheme = "https://"
	if !strings.Contains(address, "://") {
		return address, address != ""
	}
	if len(address) < len(scheme) || !strings.EqualFold(address[:len(scheme)], scheme) {
		return "", false
	}
	return address[len(scheme):], true
}

// canonicalHost writes an IP address in its one form and a name in lower case.
func canonicalHost(host string) (string, bool) {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" || ip.IsUnspecified() {
			return "", false
		}
		if ip.Is6() {
			return "[" + ip.String() + "]", true
		}
		return ip.String(), true
	}
	return strings.ToLower(host), validHostName(host)
}

// isCanonicalName knows https://<name>:<port> in its final form, without parsing it: this runs on every hit of the cache.
func isCanonicalName(address string) bool {
	rest, ok := strings.CutPrefix(address, "https://")
	colon := strings.IndexByte(rest, ':')
	if !ok || colon < 0 || !validPort(rest[colon+1:]) || !validHostName(rest[:colon]) {
		return false
	}
	letters := false
	for i := range colon {
		c := rest[i]
		if c >= 'A' && c <= 'Z' {
			return false
		}
		letters = letters || c >= 'g' && c <= 'z'
	}
	return letters // else it may be an IP address
}
