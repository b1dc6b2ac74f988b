package relay_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/workloadid/workloadid/registration/relay"
)

// addressed is a listener whose connections come from chosen addresses.
type addressed struct {
	net.Listener
	conns chan net.Conn
}

func (l *addressed) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

type remote struct {
	net.Conn
	address string
}

func (c remote) RemoteAddr() net.Addr { return textAddr(c.address) }

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func TestLimitListener(t *testing.T) {
	inner := &addressed{conns: make(chan net.Conn, 1)}
	listener := relay.LimitListener(inner, 3, 2)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	// dial returns the server's end, or nil if the listener closed it.
	dial := func(address string) net.Conn {
		t.Helper()
		client, server := net.Pipe()
		inner.conns <- remote{server, address}
		closed := make(chan error, 1)
		go func() { _, err := client.Read(make([]byte, 1)); closed <- err }()
		select {
		case conn := <-accepted:
			return conn
		case err := <-closed:
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return nil
		}
	}
	first := dial("192.0.2.1:1000")
	for _, row := range []struct {
		name, address string
		want          bool
	}{
		{"second of an address", "192.0.2.1:1001", true},
		{"third of an address", "192.0.2.1:1002", false},
		{"another address", "[2001:db8::1]:1000", true},
		{"one more than all", "[2001:db8:0:1::1]:1000", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := dial(row.address) != nil; got != row.want {
				t.Errorf("accepted: %t", got)
			}
		})
	}
	for range 2 { // a second Close releases nothing
		_ = first.Close()
	}
	if dial("[2001:db8:0:1::1]:1001") == nil || dial("[2001:db8:0:2::1]:1000") != nil {
		t.Error("one closed connection frees one slot")
	}
	close(inner.conns)
	if _, open := <-accepted; open {
		t.Error("the error of the listener is lost")
	}
}
