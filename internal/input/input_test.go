package input_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/input"
)

// endless is a standard input that gives the same for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestRead(t *testing.T) {
	if content, err := input.Read(t.Context(), strings.NewReader("request")); err != nil || string(content) != "request" {
		t.Errorf("%s, %v", content, err)
	}
	if _, err := input.Read(t.Context(), endless{}); !errors.As(err, new(*input.Error)) ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("endless: %v", err)
	}
	silent, stop := io.Pipe()
	defer stop.Close() //nolint:errcheck // ends the goroutine that reads
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	if _, err := input.Read(ctx, silent); !errors.Is(err, context.Canceled) || time.Since(start) > time.Minute {
		t.Errorf("silent: %v", err)
	}
	broken, fail := io.Pipe()
	_ = fail.CloseWithError(errors.New("input/output error")) // never fails
	if _, err := input.Read(t.Context(), broken); !errors.As(err, new(*input.Error)) {
		t.Errorf("broken: %v", err)
	}
}
