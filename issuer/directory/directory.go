package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/filelock"
	"github.com/workloadid/workloadid/issuer"
)

// Store is an [issuer.Store] in a directory. Processes of one machine may share
// it. It refuses a symbolic link that leads out of the directory. A version is
// the content, so an empty file counts as missing.
type Store struct{ dir string }

var _ issuer.Store = (*Store)(nil)

const (
	self   = provider.Name("directory")
	folder = ".workloadid"
	lock   = folder + "/lock"
)

// Open returns the [Store] of a directory, and creates a missing directory.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a web server reads it
		return nil, failed("create the directory", dir, err)
	}
	return &Store{dir}, nil
}

// failed returns the error of an operation that a person has to correct.
func failed(operation, dir string, err error) error {
	e := self.Misconfigured("check the owner, mode and free space of the directory", "%q: %s: %s", dir, operation, err)
	e.Err = err
	return e
}

// Read implements [issuer.Store].
func (s *Store) Read(_ context.Context, name string) (content []byte, version string, err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, "", failed("read "+name, s.dir, err)
	}
	defer root.Close() //nolint:errcheck // nothing was written
	return s.read(root, name)
}

func (s *Store) read(root *os.Root, name string) (content []byte, version string, err error) {
	info, err := root.Stat(name) // before opening it: a pipe would wait for a writer
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is not a file: remove it")
	case info.Size() > issuer.MaxFile:
		err = fmt.Errorf("the file has more than %d bytes", issuer.MaxFile)
	default:
		content, err = root.ReadFile(name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", issuer.ErrNotExist
	case err != nil:
		return nil, "", failed("read "+name, s.dir, err)
	}
	return content, string(content), nil
}

// Write implements [issuer.Store]. It waits for other writers until ctx ends.
func (s *Store) Write(ctx context.Context, name string, content []byte, version string) error {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return failed("write "+name, s.dir, err)
	}
	defer root.Close() //nolint:errcheck // its files are closed
	if err := root.MkdirAll(folder, 0o755); err != nil {
		return failed("lock "+lock, s.dir, err)
	}
	file, err := root.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return failed("lock "+lock, s.dir, err)
	}
	defer file.Close() //nolint:errcheck // closing unlocks
	switch err := filelock.Lock(ctx, file); {
	case ctx.Err() != nil:
		return self.Unanswered("wait for the process that holds "+lock, ctx.Err())
	case err != nil:
		return failed("lock "+lock, s.dir, err)
	}
	_, current, err := s.read(root, name)
	switch {
	case err != nil && !errors.Is(err, issuer.ErrNotExist):
		return err
	case current != version:
		return issuer.ErrChanged
	}
	if err := replace(root, name, content); err != nil {
		return failed("write "+name, s.dir, err)
	}
	return nil
}

// The caller of replace holds the lock.
func replace(root *os.Root, name string, content []byte) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	temporary := name + ".new"
	_ = root.Remove(temporary) // left by a process that died
	file, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		_ = root.Remove(temporary) // the first error counts
	}
	return err
}
