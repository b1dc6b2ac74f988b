// Package connlimit bounds the open connections of a server.
//
// Each connection begins unproven. A handler calls [Prove] once a credential of
// the connection has been verified. Beyond a bound, unproven connections go
// before proven ones, and of these the address with the most connections loses
// its oldest one. So an address that floods the server displaces only itself,
// and clients behind one NAT address may use what no other address needs.
package connlimit

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// Listener accepts every connection, and closes another one if there are too
// many. It is safe for concurrent use.
type Listener struct {
	net.Listener
	// Max bounds the open connections.
	Max int
	// PerAddress bounds the connections of one address, a /64 for IPv6. 0 means
	// Max.
	PerAddress int
	// Changed receives the number of open connections. Nil drops it.
	Changed func(open int)
	// Evicted is called for each connection that the listener closes. Nil is
	// allowed.
	Evicted func()

	mu   sync.Mutex
	open []*conn // the oldest first
}

// conn is a connection that leaves its listener when it is closed.
type conn struct {
	net.Conn
	listener *Listener
	site     string       // the address, or the /48 for IPv6
	network  string       // the address, or the /64 for IPv6
	proven   bool         // guarded by listener.mu
	unread   atomic.Int64 // of maxHello
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	from := accepted.RemoteAddr().String()
	c := &conn{Conn: accepted, listener: l, site: prefix(from, 48), network: Network(from)} //nolint:mnd // bits, above
	c.unread.Store(maxHello)
	l.mu.Lock()
	l.open = append(l.open, c)
	l.changed()
	surplus := l.surplus(c, false)
	l.mu.Unlock()
	l.evict(surplus)
	return c, nil
}

// Prove notes that a credential of the request's connection was verified. The
// context is the request's. It does nothing on a connection of another
// listener.
func Prove(ctx context.Context) {
	c := of(ctx)
	if c == nil {
		return
	}
	c.listener.mu.Lock()
	var surplus *conn
	if !c.proven && slices.Contains(c.listener.open, c) {
		c.proven = true
		surplus = c.listener.surplus(c, true)
	}
	c.listener.mu.Unlock()
	c.listener.evict(surplus)
}

// Proven reports whether [Prove] was called for the request's connection.
func Proven(ctx context.Context) bool {
	c := of(ctx)
	if c == nil {
		return false
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.proven
}

// of returns the connection of a request, or nil if another listener accepted
// it.
func of(ctx context.Context) *conn {
	local, _ := ctx.Value(http.LocalAddrContextKey).(localAddr)
	return local.conn
}

// surplus returns the connection to close if a bound is exceeded: of the
// address of c, or of all. Proven connections alone have lower bounds, so that
// new ones find room in which to prove themselves.
func (l *Listener) surplus(c *conn, proven bool) *conn {
	own := func(o *conn) bool { return o.network == c.network }
	for _, scope := range []struct {
		max  int
		open []*conn
	}{
		{cmp.Or(l.PerAddress, l.Max), filter(l.open, own)},
		{l.Max, l.open},
	} {
		candidates, most := scope.open, scope.max
		if proven {
			candidates, most = filter(candidates, func(o *conn) bool { return o.proven }), most-reserve(most)
		}
		if len(candidates) > most {
			return greediest(candidates)
		}
	}
	return nil
}

// reserve returns how many of a number of connections stay free of proven ones.
func reserve(most int) int {
	const share = 8
	return min(most-1, max(1, most/share))
}

// greediest returns the connection to close: an unproven one if there is any,
// of the site with the most, of its network with the most.
func greediest(candidates []*conn) *conn {
	if unproven := filter(candidates, func(c *conn) bool { return !c.proven }); len(unproven) > 0 {
		candidates = unproven
	}
	for _, key := range []func(*conn) string{
		func(c *conn) string { return c.site }, func(c *conn) string { return c.network }} {
		count, most := map[string]int{}, ""
		for _, c := range candidates {
			if count[key(c)]++; count[key(c)] > count[most] {
				most = key(c)
			}
		}
		candidates = filter(candidates, func(c *conn) bool { return key(c) == most })
	}
	return candidates[0]
}

func filter(conns []*conn, keep func(*conn) bool) []*conn {
	var kept []*conn
	for _, c := range conns {
		if keep(c) {
			kept = append(kept, c)
		}
	}
	return kept
}

func (l *Listener) evict(c *conn) {
	if c == nil {
		return
	}
	if l.Evicted != nil {
		l.Evicted()
	}
	_ = c.Close() // its client tries again
}

func (l *Listener) changed() {
	if l.Changed != nil {
		l.Changed(len(l.open))
	}
}

// maxHello is how much a client may send before the server answers, in bytes.
// crypto/tls would keep 64 KiB of an unfinished ClientHello.
const maxHello = 16 << 10

// Read implements net.Conn. It fails if a ClientHello is too large.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.unread.Add(-int64(n)) < 0 {
		return 0, errors.New("the client sends too much before the server has answered")
	}
	return n, err
}

// Write implements net.Conn. From then on the limits of net/http count.
func (c *conn) Write(b []byte) (int, error) {
	c.unread.Store(math.MaxInt64)
	return c.Conn.Write(b)
}

// Close implements net.Conn. A second call releases nothing.
func (c *conn) Close() error {
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.changed()
	l.mu.Unlock()
	return c.Conn.Close()
}

// localAddr leads from a request to its connection: net/http puts the local
// address into the context of each request, also through TLS and HTTP/2. So no
// server can forget to pass the connection on.
type localAddr struct {
	net.Addr
	conn *conn
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return localAddr{c.Conn.LocalAddr(), c} }

// Network returns a remote address without its port. Of IPv6 it returns the
// /64, since one client has at least that many addresses.
func Network(remote string) string { return prefix(remote, 64) } //nolint:mnd // bits, above

func prefix(remote string, bits int) string {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := address.Addr().Unmap()
	if ip.Is4() {
		bits = 32
	}
	network, _ := ip.Prefix(bits) // neither is too long
	return network.String()
}
