// Package stdin reads requests and tokens from standard input, within limits of size and time.
package stdin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/providers"
)

// MaxRequest bounds a request, in bytes. The largest hold a token and annotations, which Kubernetes bounds at 256 KiB.
const MaxRequest = 512 << 10

const self = providers.Name("")

// Read reads in to its end, within the size of a request. It returns when the context expires. The reading goroutine then
// continues until in is closed, so use it for standard input and similar sources.
func Read(ctx context.Context, in io.Reader) ([]byte, error) {
	return read(ctx, in, func(in io.Reader) ([]byte, error) { return io.ReadAll(in) })
}

// ReadLines is Read up to an empty line. It does not wait for further input.
func ReadLines(ctx context.Context, in io.Reader) ([]byte, error) {
	return read(ctx, in, func(in io.Reader) ([]byte, error) {
		var content []byte
		for lines := bufio.NewReader(in); ; {
			line, err := lines.ReadBytes('\n')
			content = append(content, line...)
			switch {
			case errors.Is(err, io.EOF), err == nil && len(bytes.TrimRight(line, "\r\n")) == 0:
				return content, nil
			case err != nil:
				return nil, err
			}
		}
	})
}

func read(ctx context.Context, in io.Reader, take func(io.Reader) ([]byte, error)) ([]byte, error) {
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		content, err := take(io.LimitReader(in, MaxRequest+1))
		done <- result{content, err}
	}()
	select {
	case r := <-done:
		switch {
		case r.err != nil:
			return nil, self.Misconfigured("pass the request on standard input", "the request cannot be read: %v", r.err)
		case len(r.content) > MaxRequest:
			return nil, self.Misconfigured("pass one request on standard input", "the request has more than %d bytes", MaxRequest)
		}
		return r.content, nil
	case <-ctx.Done():
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: ctx.Err(),
			Message: "the request on standard input does not end", Remedy: "close standard input after the request"}
	}
}
