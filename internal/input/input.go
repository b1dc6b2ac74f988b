// Package input reads requests, tokens and certificates from standard input and
// from files, within limits of size and time.
package input

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxRequest bounds a request, in bytes. The largest hold a token and
// annotations, which Kubernetes bounds at 256 KiB.
const MaxRequest = 512 << 10

// Error says why a request cannot be read, and the remedy.
type Error struct {
	Message, Remedy string
	Err             error // of the context
}

// Error returns message and remedy.
func (e *Error) Error() string { return e.Message + "; " + e.Remedy }

// Unwrap returns the error of the context.
func (e *Error) Unwrap() error { return e.Err }

// Read reads in to its end, within the size of a request. It returns when the
// context expires. The reading goroutine then continues until in is closed, so
// use it for standard input and similar sources.
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
			return nil, &Error{Message: fmt.Sprintf("the request cannot be read: %v", r.err),
				Remedy: "pass the request on standard input"}
		case len(r.content) > MaxRequest:
			return nil, &Error{Message: fmt.Sprintf("the request has more than %d bytes", MaxRequest),
				Remedy: "pass one request on standard input"}
		}
		return r.content, nil
	case <-ctx.Done():
		return nil, &Error{Message: "the request on standard input does not end",
			Remedy: "close standard input after the request", Err: ctx.Err()}
	}
}

// ReadFile reads a file that the controller's own environment names, of at most
// 1 MiB.
func ReadFile(name string) ([]byte, error) {
	const most = 1 << 20
	file, err := os.Open(name) //nolint:gosec // see above
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && len(content) > most {
		err = fmt.Errorf("it is larger than %d bytes", most)
	}
	return content, err
}
