package connlimit

import (
	"io"
	"net"
	"testing"
)

// A ClientHello that never ends would take 64 KiB of crypto/tls for each
// connection.
func TestUnfinishedHelloIsBounded(t *testing.T) {
	ours, theirs := net.Pipe()
	c := &conn{Conn: ours, listener: &Listener{}}
	c.unread.Store(maxHello)
	go func() {
		defer theirs.Close()                          //nolint:errcheck // nothing was kept
		_, _ = theirs.Write(make([]byte, maxHello+1)) // fails if the server closes first
	}()
	n, err := io.Copy(io.Discard, io.LimitReader(c, 2*maxHello))
	if err == nil || n > maxHello {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// Once the server has answered, the limits of net/http count.
func TestAnsweredClientSendsMore(t *testing.T) {
	ours, theirs := net.Pipe()
	c := &conn{Conn: ours, listener: &Listener{}}
	c.unread.Store(maxHello)
	go func() {
		defer theirs.Close() //nolint:errcheck // nothing was kept
		_, _ = io.ReadFull(theirs, make([]byte, 5))
		_, _ = theirs.Write(make([]byte, 3*maxHello)) // the test counts them
	}()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, c); err != nil || n != 3*maxHello {
		t.Errorf("%d bytes, %v", n, err)
	}
}
