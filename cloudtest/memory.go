package cloudtest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// handlerTransport answers requests for one host from a handler, without a
// network.
type handlerTransport struct {
	host    string
	handler http.Handler
}

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.URL.Host != t.host {
		return nil, fmt.Errorf("cloudtest: this client reaches host %q only, not %q", t.host, r.URL.Host)
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(w, r)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Header: w.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// answer is an http.ResponseWriter that records. httptest has one too, but adds
// flags to every program that imports it.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
