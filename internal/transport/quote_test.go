package transport_test

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/transport"
)

// answering returns the address of a server that sends the same bytes to every
// request.
func answering(t *testing.T, bytes string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = conn.Write([]byte(bytes)) // the client sees what is missing
			}
			_ = conn.Close() // as above
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close() // ends the server
		<-done
	})
	return "http://" + listener.Addr().String() + "/"
}

// net/http quotes malformed answers, which escapes quotes and backslashes. No
// secret is found then, so nothing of an answer is repeated.
func TestMessagesQuoteNoAnswer(t *testing.T) {
	const secret, part = `hunter"two\word-0123`, "word-0123"
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
	for name, tc := range map[string]struct{ answer, want string }{
		"not HTTP":         {secret + "\r\n\r\n", "not HTTP"},
		"malformed status": {"HTTP/1.1 " + secret + "\r\n\r\n", "not HTTP"},
		"malformed header": {"HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n", "not HTTP"},
		"malformed length": {"HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n", "not HTTP"},
		"unknown encoding": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n", "not HTTP"},
		"redirect to no address": {"HTTP/1.1 302 Found\r\nLocation: http://[" + secret + "\r\nContent-Length: 0\r\n\r\n",
			"not HTTP"},
		"redirect to another host": {"HTTP/1.1 302 Found\r\nLocation: http://hunter\"two" + part +
			"/\r\nContent-Length: 0\r\n\r\n", "redirect"},
		"malformed chunk":            {chunked + "\r\n" + secret + "\r\n", "read the answer"},
		"malformed trailer":          {chunked + "Trailer: X\r\n\r\n0\r\n" + secret + ": \x01\r\n\r\n", "not HTTP"},
		"too short":                  {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + secret, "unexpected EOF"},
		"nothing, so it is told why": {"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // Send tries three times
			address := answering(t, tc.answer)
			c := client(t, &transport.Pool{}, nil, "")
			_, err := transport.Send(t.Context(), c, func() (*http.Request, error) {
				return http.NewRequest(http.MethodGet, address, nil) //nolint:noctx // Send sets it
			}, nil)
			if err == nil {
				t.Fatal("no error")
			}
			got := transport.Message(err, secret, `hunter"two`+part)
			if strings.Contains(got, part) || strings.Contains(got, "hunter") || !strings.Contains(got, tc.want) ||
				!strings.Contains(got, "127.0.0.1") {
				t.Errorf("%s\nof: %v", got, err)
			}
		})
	}
}

// A client above another client, as those of SDKs are.
func TestMessagesOfNestedClientsQuoteNoAnswer(t *testing.T) {
	inner := client(t, &transport.Pool{}, nil, "")
	outer := &http.Client{Transport: nested{inner}}
	_, err := get(t, outer, answering(t, "hunter\"two\r\n\r\n"))
	if got := transport.Message(err, `hunter"two`); strings.Contains(got, "hunter") || !strings.Contains(got, "not HTTP") {
		t.Error(got)
	}
}

type nested struct{ *http.Client }

func (n nested) RoundTrip(r *http.Request) (*http.Response, error) {
	return n.Do(r)
}
