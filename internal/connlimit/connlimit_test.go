package connlimit_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/workloadid/workloadid/internal/connlimit"
)

// queue is a listener whose connections come from chosen addresses.
type queue chan net.Conn

func (q queue) Accept() (net.Conn, error) {
	if c, ok := <-q; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (queue) Close() error   { return nil }
func (queue) Addr() net.Addr { return nil }

// remote is a connection of an address, which notes that it was closed.
type remote struct {
	net.Conn
	address string
	closed  bool
}

func (r *remote) Network() string      { return "tcp" }
func (r *remote) String() string       { return r.address }
func (r *remote) RemoteAddr() net.Addr { return r }
func (r *remote) LocalAddr() net.Addr  { return r }
func (r *remote) Close() error         { r.closed = true; return nil }

// step opens connections. An address with "!" proves itself.
type step struct {
	address string
	count   int
}

func TestEviction(t *testing.T) {
	for name, row := range map[string]struct {
		max, perAddress int
		steps           []step
		want            map[string]int // open connections at the end
	}{
		"the greediest address loses": {4, 0, []step{{"192.0.2.1", 3}, {"192.0.2.2", 1}, {"192.0.2.3", 1}},
			map[string]int{"192.0.2.1": 2, "192.0.2.2": 1, "192.0.2.3": 1}},
		"one address may use all": {4, 0, []step{{"192.0.2.1", 9}}, map[string]int{"192.0.2.1": 4}},
		"share of an address": {8, 3, []step{{"192.0.2.1", 9}, {"192.0.2.2", 2}},
			map[string]int{"192.0.2.1": 3, "192.0.2.2": 2}},
		"addresses of one /64 share": {8, 3, []step{{"2001:db8::1", 3}, {"2001:db8::2", 3}},
			map[string]int{"2001:db8::2": 3}},
		"networks of one /48 displace each other": {4, 0,
			[]step{{"192.0.2.1", 2}, {"2001:db8::1", 1}, {"2001:db8:0:1::1", 1}, {"2001:db8:0:2::1", 1}, {"2001:db8:0:3::1", 1}},
			map[string]int{"192.0.2.1": 2, "2001:db8:0:2::1": 1, "2001:db8:0:3::1": 1}},
		"four addresses do not displace proven connections": {8, 0,
			[]step{{"192.0.2.9!", 5}, {"192.0.2.1", 9}, {"192.0.2.2", 9}, {"192.0.2.3", 9}, {"192.0.2.4", 9}},
			map[string]int{"192.0.2.9!": 5, "192.0.2.2": 1, "192.0.2.3": 1, "192.0.2.4": 1}},
		"proven connections leave room for new ones": {8, 0, []step{{"192.0.2.1!", 9}, {"192.0.2.2", 1}},
			map[string]int{"192.0.2.1!": 7, "192.0.2.2": 1}},
		"proven connections leave room in a share": {16, 8, []step{{"192.0.2.1!", 9}, {"192.0.2.1", 1}},
			map[string]int{"192.0.2.1!": 7, "192.0.2.1": 1}},
		"one connection in all": {1, 0, []step{{"192.0.2.1!", 2}}, map[string]int{"192.0.2.1!": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inner, open, evicted := make(queue, 1), 0, 0
			l := &connlimit.Listener{Listener: inner, Max: row.max, PerAddress: row.perAddress, Changed: func(n int) {
				open = n
			}, Evicted: func() { evicted++ }}
			all, prove := map[string][]*remote{}, func(c net.Conn) {
				connlimit.Prove(context.WithValue(t.Context(), http.LocalAddrContextKey, c.LocalAddr()))
			}
			total := 0
			for _, s := range row.steps {
				address, proven := s.address, s.address[len(s.address)-1] == '!'
				if proven {
					address = address[:len(address)-1]
				}
				for i := range s.count {
					r := &remote{address: net.JoinHostPort(address, fmt.Sprint(i))}
					all[s.address] = append(all[s.address], r)
					inner <- r
					c, err := l.Accept()
					if err != nil {
						t.Fatal(err)
					}
					if proven {
						prove(c)
						prove(c) // again, as each request does
					}
					total++
				}
			}
			left := 0
			for address, conns := range all {
				n := len(slices.DeleteFunc(conns, func(r *remote) bool { return r.closed }))
				if left += n; n != row.want[address] {
					t.Errorf("%s has %d connections, want %d", address, n, row.want[address])
				}
			}
			if open != left || evicted != total-left {
				t.Errorf("%d connections counted, %d evicted; %d of %d are open", open, evicted, left, total)
			}
		})
	}
}

func TestListenerReturnsErrors(t *testing.T) {
	inner := make(queue)
	close(inner)
	if _, err := (&connlimit.Listener{Listener: inner, Max: 1}).Accept(); err == nil {
		t.Error("no error")
	}
	connlimit.Prove(t.Context()) // of a server with another listener
}
