package testworld

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// RefusingProxy starts a proxy that answers every request with status 403. It returns the proxy's address and a function that
// lists what the proxy was asked, each as method and host.
func RefusingProxy(t testing.TB) (address *url.URL, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.Host)
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// Alias starts a server and returns its address with a host name in place of 127.0.0.1. Until the test ends, every name that
// this process looks up leads to 127.0.0.1, so the test must not run beside others.
func Alias(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, nameserver := net.Pipe()
		go answerNames(nameserver)
		return client, nil
	}}
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "http://alias.example:" + port
}

// answerNames speaks DNS over a stream (RFC 1035, section 4.2.2) until the client closes it.
func answerNames(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // nothing is lost
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer := addressAnswer(query)
		answer = append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...) //nolint:gosec // less than 300 bytes
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// addressAnswer answers a query for IPv4 addresses with 127.0.0.1, and others with no records.
func addressAnswer(query []byte) []byte {
	const header, afterName = 12, 5
	question := query[header:]
	question = question[:bytes.IndexByte(question, 0)+afterName]
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if question[len(question)-3] == 1 { // type A
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
	}
	return answer
}
