package server

import (
	"errors"
	"io"
	"log"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// connections is a listener that bounds the open connections. Beyond the bound, the address with the most connections loses its oldest
// one. So an address that floods the server displaces only itself, and the pods of a node behind SNAT may use what no other address needs.
type connections struct {
	net.Listener
	max     int
	gauge   prometheus.Gauge
	evicted prometheus.Counter

	mu   sync.Mutex
	open []*connection // the oldest first
}

type connection struct {
	net.Conn
	from     string
	listener *connections
	unread   atomic.Int64 // of maxHello
}

// maxHello is how much a client may send before the server answers, in bytes. crypto/tls would keep 64 KiB of an unfinished ClientHello.
const maxHello = 16 << 10

// Read implements net.Conn. It fails if a ClientHello is too large.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.unread.Add(-int64(n)) < 0 {
		return 0, errors.New("the client sends too much before the server has answered")
	}
	return n, err
}

// Write implements net.Conn. From then on the limits of net/http count.
func (c *connection) Write(b []byte) (int, error) {
	c.unread.Store(math.MaxInt64)
	return c.Conn.Write(b)
}

// errorLog writes some lines a second. net/http writes one for each connection whose handshake fails.
type errorLog struct {
	limit *rate.Limiter
	out   io.Writer
}

func newErrorLog() *log.Logger {
	const each, burst = 100 * time.Millisecond, 10
	return log.New(errorLog{rate.NewLimiter(rate.Every(each), burst), os.Stderr}, "", log.LstdFlags)
}

func (l errorLog) Write(line []byte) (int, error) {
	if !l.limit.Allow() {
		return len(line), nil
	}
	return l.out.Write(line)
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	from, _, _ := net.SplitHostPort(accepted.RemoteAddr().String()) // of TCP
	c := &connection{Conn: accepted, from: from, listener: l}
	c.unread.Store(maxHello)
	if surplus := l.add(c); surplus != nil {
		l.evicted.Inc()
		_ = surplus.Close() // its client tries again
	}
	return c, nil
}

// add returns the connection to close if there is one too many.
func (l *connections) add(c *connection) *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	l.gauge.Set(float64(len(l.open)))
	if len(l.open) <= l.max {
		return nil
	}
	count, most := map[string]int{}, ""
	for _, c := range l.open {
		if count[c.from]++; count[c.from] > count[most] {
			most = c.from
		}
	}
	return l.open[slices.IndexFunc(l.open, func(c *connection) bool { return c.from == most })]
}

// Close implements net.Conn.
func (c *connection) Close() error {
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.gauge.Set(float64(len(l.open)))
	l.mu.Unlock()
	return c.Conn.Close()
}
