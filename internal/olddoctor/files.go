package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/jwt"
)

// fileGrace is the time for a file when the network has used up all there was: it takes less than a millisecond.
const fileGrace = 50 * time.Millisecond

var errNotRegular = errors.New("it is not a regular file")

// calling calls the system for a file. A dead mount of NFS or of a CSI driver never answers, and no system call can be taken
// back: its goroutine lives until the mount does, which cannot be helped. The run goes on without it.
func calling[T any](ctx context.Context, path string, call func() (T, error)) (T, error) {
	type outcome struct {
		result T
		err    error
	}
	limit := requestTimeout
	if ctx.Err() != nil { // files are judged all the same
		ctx, limit = context.WithoutCancel(ctx), fileGrace
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o := ending(ctx, fmt.Sprintf("the file %.300q", path), func() (o outcome) {
		o.result, o.err = call()
		return o
	}, func(error) outcome { return outcome{err: &silence{"the file system", context.DeadlineExceeded}} })
	return o.result, o.err
}

// readToken reads a file of the size of a token at most, and nothing but a file: a FIFO or a device may have no end, nor even
// a beginning.
func readToken(ctx context.Context, path string) (string, error) {
	return calling(ctx, path, func() (string, error) { return readRegular(path) })
}

func readRegular(path string) (string, error) {
	if _, err := regular(path); err != nil { // before it is opened: opening a device may do something
		return "", err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the caller names it; a FIFO by now does not block
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(errNotRegular, err)
	}
	content, err := io.ReadAll(io.LimitReader(file, jwt.MaxSize+1))
	if err != nil {
		return "", err
	}
	if len(content) > jwt.MaxSize {
		return "", fmt.Errorf("it is larger than %d bytes", jwt.MaxSize)
	}
	return string(content), nil
}

func regular(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return info, &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return info, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	return info, nil
}

// statFile and lstatFile are those of os, within the context's time.
func statFile(ctx context.Context, path string) (fs.FileInfo, error) {
	return calling(ctx, path, func() (fs.FileInfo, error) { return os.Stat(path) })
}

func lstatFile(ctx context.Context, path string) (fs.FileInfo, error) {
	return calling(ctx, path, func() (fs.FileInfo, error) { return os.Lstat(path) })
}

// httpClientFor is that of the package rest, which reads the files that the config names without a context and without looking
// at what they are.
func httpClientFor(ctx context.Context, config *rest.Config) (*http.Client, error) {
	for _, path := range []string{config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile} {
		if path == "" {
			continue
		}
		if _, err := calling(ctx, path, func() (fs.FileInfo, error) { return regular(path) }); err != nil {
			return nil, err
		}
	}
	return calling(ctx, firstOf(config.CAFile, config.BearerTokenFile), func() (*http.Client, error) {
		return rest.HTTPClientFor(config)
	})
}
