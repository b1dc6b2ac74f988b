package server

import (
	"bytes"
	"testing"
)

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
