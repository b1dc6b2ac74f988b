package relay

import (
	"net"
	"sync"
)

// LimitListener returns a listener that holds at most a number of connections at a time, and of each remote address at most another one, a
// /64 for IPv6. It closes other connections at once, so that one address cannot keep the others waiting.
func LimitListener(listener net.Listener, most, perAddress int) net.Listener {
	return &limited{listener, newBudget(int64(most), int64(perAddress))}
}

type limited struct {
	net.Listener
	open *budget
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := network(conn.RemoteAddr().String())
		if l.open.reserve(from, 1) {
			return &counted{Conn: conn, release: sync.OnceFunc(func() { l.open.release(from, 1) })}, nil
		}
		_ = conn.Close() // the client cannot be told more
	}
}

// counted is a connection that releases its slot when it is closed.
type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
