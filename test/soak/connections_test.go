package soak

import (
	"net"
	"strings"
	"sync"
)

// connections are those to the cloud.
type connections struct {
	mu   sync.Mutex
	open map[*connection]bool
}

type connection struct {
	net.Conn
	to string
	of *connections
}

func (c *connections) add(conn net.Conn, to string) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*connection]bool{}
	}
	added := &connection{conn, to, c}
	c.open[added] = true
	return added
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// cut closes those to the hosts of a domain, in the middle of whatever is sent.
// Empty: all.
func (c *connections) cut(domain string) int {
	c.mu.Lock()
	var all []net.Conn
	for conn := range c.open {
		if host, _, _ := net.SplitHostPort(conn.to); strings.HasSuffix(host, domain) {
			all = append(all, conn.Conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range all {
		_ = conn.Close() // that is the point
	}
	return len(all)
}
