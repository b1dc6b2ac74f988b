package webhook

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// limit bounds the memory of all requests together: each reads its body only while it holds a slot, and for a limited time.
func limit(next http.Handler) http.Handler {
	slots := make(chan struct{}, maxInFlight)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-r.Context().Done():
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(readTimeout)) // an http.Server always supports it
		if r.Body != nil {
			r.Body = &body{ReadCloser: http.MaxBytesReader(w, r.Body, maxBody), control: control}
		}
		next.ServeHTTP(w, r)
	})
}

// body removes the deadline at its end. Otherwise an expired one would cancel the request's context.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
