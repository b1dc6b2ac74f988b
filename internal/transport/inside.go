package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// ErrInside is the error of clients of Outside for connections to inside
// addresses.
var ErrInside = errors.New("refused to connect to an address of the own network")

// LeadsInside reports whether a host can only lie in the own network, or is
// malformed: names that cannot be registered, and the addresses of
// AddressInside. Other names may lead there too.
func LeadsInside(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return AddressInside(ip)
	}
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	switch {
	case len(labels) == 1, slices.Contains(labels, ""), strings.ContainsFunc(host, func(r rune) bool {
		return r <= ' ' || r > '~'
	}):
		return true
	case last[0] >= '0' && last[0] <= '9': // some resolvers take 127.1 for an address
		return true
	}
	// RFC 6761, RFC 6762, RFC 8375, and what clusters and clouds use. In a
	// cluster kubernetes.default is the API server.
	return slices.Contains([]string{"localhost", "localdomain", "local", "internal", "svc", "default"}, last) ||
		strings.HasSuffix(host, ".home.arpa")
}

// AddressInside reports whether an address is not public: loopback, private,
// shared, link-local, multicast, with a zone, or IPv6 that leads to one of
// these. The IANA's registries of special-purpose addresses list them.
func AddressInside(ip netip.Addr) bool {
	if ip.Zone() != "" {
		return true
	}
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || slices.ContainsFunc(notPublic(), func(p netip.Prefix) bool {
		return p.Contains(ip)
	}) {
		return true
	}
	embedded, ok := embeddedIPv4(ip)
	return ok && AddressInside(embedded)
}

func notPublic() []netip.Prefix {
	var list []netip.Prefix
	for _, prefix := range []string{
		"0.0.0.0/8",
		"100.64.0.0/10",    // shared by customers of one provider; Alibaba's metadata service is there
		"168.63.129.16/32", // Azure's own services for a machine
		"192.0.0.0/24",
		"198.18.0.0/15",
		"240.0.0.0/4",
		"::/96",          // IPv4 within IPv6, deprecated
		"64:ff9b:1::/48", // local NAT64
		"2001::/32",      // Teredo
		"fec0::/10",      // private before fc00::/7
	} {
		list = append(list, netip.MustParsePrefix(prefix))
	}
	return list
}

// embeddedIPv4 returns the target of NAT64 (RFC 6052), of stateless translation
// (RFC 2765, section 2.1) and of 6to4 (RFC 3056).
func embeddedIPv4(ip netip.Addr) (netip.Addr, bool) {
	b := ip.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(ip), netip.MustParsePrefix("::ffff:0:0:0/96").Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case netip.MustParsePrefix("2002::/16").Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

// Outside returns a client for an untrusted address. It connects to no inside
// address, also if a name resolves to one. Through a proxy it refuses nothing,
// because the proxy resolves the name. The result is nil if the client's
// transport is not http.Transport.
func Outside(client *http.Client, address string) *http.Client {
	return Derive(client, func(t *http.Transport) {
		req, err := http.NewRequest(http.MethodGet, address, nil) //nolint:noctx // is not sent
		if err == nil && t.Proxy != nil {
			if proxy, err := t.Proxy(req); err != nil || proxy != nil {
				return
			}
		}
		t.Proxy = nil
		d := newDialer()
		d.ControlContext = refuseInside
		t.DialContext, t.DialTLSContext = d.DialContext, nil
		t.DialTLS = nil //nolint:staticcheck // it would be used still
	})
}

func refuseInside(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || AddressInside(at.Addr()) {
		return ErrInside
	}
	return nil
}

// Derive returns a guarded client whose transport is a changed copy of the
// client's. It is nil if the client's transport is not http.Transport. The
// caller closes idle connections.
func Derive(client *http.Client, change func(*http.Transport)) *http.Client {
	next, limit := client.Transport, int64(MaxBody)
	for {
		b, ok := next.(bounded)
		if !ok {
			break
		}
		next, limit = b.next, min(limit, b.bytes)
	}
	if next == nil {
		next = http.DefaultTransport
	}
	t, ok := next.(*http.Transport)
	if !ok {
		return nil
	}
	t = t.Clone()
	change(t)
	derived := *client
	derived.Transport = BoundedTo(t, limit)
	return Guard(&derived)
}

func newDialer() *net.Dialer { return &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive} }
