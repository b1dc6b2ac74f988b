package server

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// A ClientHello that never ends would take 64 KiB of crypto/tls for each connection.
func TestUnfinishedHelloIsBounded(t *testing.T) {
	ours, theirs := net.Pipe()
	c := &connection{Conn: ours, listener: &connections{}}
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
	c := &connection{Conn: ours, listener: &connections{}}
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

// A flood of failed handshakes leaves some lines a second, not one for each.
func TestErrorLogIsBounded(t *testing.T) {
	var out bytes.Buffer
	logger := newErrorLog()
	limited := logger.Writer().(errorLog) //nolint:errcheck,forcetypeassert // newErrorLog sets it
	limited.out = &out
	logger.SetOutput(limited)
	for range 1000 {
		logger.Print("http: TLS handshake error")
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n < 1 || n > 100 {
		t.Errorf("%d lines", n)
	}
}
