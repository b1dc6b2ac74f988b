package provider

import (
	"net/netip"
	"strings"

	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/redact"
)

// RegistryHost returns the host of an artifact repository,
// <host>[:<port>][/<path>], in the canonical form for comparisons: in lower
// case, without the port if that is 443. It refuses a scheme, user information,
// a query, and invalid host names.
func RegistryHost(artifactRepository string) (string, error) {
	host, _, _ := strings.Cut(artifactRepository, "/")
	name, port, hasPort := strings.Cut(host, ":")
	valid, lower := address.HostName(name)
	if !valid || hasPort && !address.ValidPort(port) {
		return "", Name("").Misconfigured("use <host>/<path>, without a scheme such as oci:// or https://",
			"%.300q is not an artifact repository", artifactRepository)
	}
	if port == "443" {
		host = name
	}
	if !lower {
		host = strings.ToLower(host)
	}
	return host, nil
}

// validHostName is a DNS name of one label or more, in any case.
func validHostName(s string) bool {
	valid, _ := address.HostName(s)
	return valid
}

// ParseClusterAddress returns the canonical form of the address of a Kubernetes
// API server, https://<host>:<port>[<path>]: the host in lower case, always
// with a port, no slash at the end. It refuses other schemes, user information,
// queries, fragments, and more than 2048 bytes. The scheme may be left out. An
// IPv6 address without brackets cannot have a port.
func ParseClusterAddress(given string) (string, error) {
	if isCanonicalName(given) {
		return given, nil
	}
	const remedy = "use https://<host>:<port>"
	rest := given
	if scheme, after, found := strings.Cut(given, "://"); found {
		if rest = after; !strings.EqualFold(scheme, "https") {
			return "", Name("").Misconfigured(remedy, "the cluster address %q is refused: the scheme has to be https",
				redact.URL(given))
		}
	}
	if ip, err := netip.ParseAddr(strings.TrimSuffix(rest, "/")); err == nil && ip.Is6() {
		rest = "[" + ip.String() + "]"
	}
	u, err := address.Parse("cluster address", "https://"+rest, address.Path)
	if err != nil {
		return "", Name("").Misconfigured(remedy, "%v", err)
	}
	path := strings.TrimRight(u.Path, "/")
	if strings.Contains(rest, "%") || strings.Contains(path, "//") || strings.Contains(path+"/", "/../") ||
		strings.Contains(path+"/", "/./") {
		return "", Name("").Misconfigured(remedy, "the cluster address %q is refused: its path is not clean",
			redact.URL(given))
	}
	host, _ := address.Canonical(u)
	return "https://" + host + path, nil
}

// isCanonicalName knows https://<name>:<port> in its final form, without
// parsing it: this runs on every hit of the cache.
func isCanonicalName(given string) bool {
	rest, ok := strings.CutPrefix(given, "https://")
	colon := strings.IndexByte(rest, ':')
	if !ok || colon < 0 || !address.ValidPort(rest[colon+1:]) || !validHostName(rest[:colon]) {
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
