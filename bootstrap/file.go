package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// readFile reads a regular file of bounded size, if pass accepts its owner and
// mode. It checks the opened file, because another file may replace the name
// meanwhile. Opening does not block, because a named pipe would wait for a
// writer.
func readFile(path string, pass func(fs.FileInfo) error) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0) //nolint:gosec // the user names the file
	if err != nil {
		return nil, withoutPath(err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	stat, err := file.Stat()
	if err != nil {
		return nil, withoutPath(err)
	}
	if !stat.Mode().IsRegular() {
		return nil, errors.New("it is no regular file: pass - and pipe it into standard input")
	}
	if err := pass(stat); err != nil {
		return nil, err
	}
	return bounded(file)
}

func anyOwner(fs.FileInfo) error { return nil }

// ownOnly accepts files that only the process's user and the superuser can
// write.
func ownOnly(stat fs.FileInfo) error {
	if stat.Mode().Perm()&0o022 != 0 || !ownedByUs(stat) {
		return errors.New("it can be written by others: chown it to this process's user and chmod 600 it, or delete it")
	}
	return nil
}

// writeAtomically replaces a file with a file of mode 0600, or leaves it
// unchanged.
func writeAtomically(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("create a file in %.300q: %w", filepath.Dir(path), withoutPath(err))
	}
	defer os.Remove(file.Name()) //nolint:errcheck // after a success it no longer exists
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return withoutPath(err)
}

// withoutPath drops the path from an error. The caller's error names the path,
// or the path is a temporary file.
func withoutPath(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
