package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// readFile reads a regular file of bounded size whose owner and mode pass. What is checked is the file that is read, not what
// its name stands for a moment later. Opening does not block: a named pipe would wait for a writer for ever.
func readFile(path string, pass func(fs.FileInfo) error) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0) //nolint:gosec // the file that the user names
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

// ownOnly passes files that nobody but the process's user and the superuser can have written.
func ownOnly(stat fs.FileInfo) error {
	if stat.Mode().Perm()&0o022 != 0 || !ownedByUs(stat) {
		return errors.New("it can be written by others: chown it to this process's user and chmod 600 it, or delete it")
	}
	return nil
}

// writeAtomically replaces a file by one with mode 0600, or leaves it as it is.
func writeAtomically(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("create a file in %.300q: %w", filepath.Dir(path), withoutPath(err))
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it is gone already if all went well
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

// withoutPath drops the path of the operating system's error, which the caller's error names, or which is a temporary file's.
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
