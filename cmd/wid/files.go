package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// maxFile is more than any file that this program reads whole has, in bytes.
const maxFile = 1 << 20

var errTooLarge = errors.New("it is larger than a megabyte")

// readBounded reads a file that somebody has named.
func readBounded(name string) ([]byte, error) { return readAtMost(name, maxFile) }

func readAtMost(name string, most int64) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(content)) > most {
		err = errTooLarge
	}
	return content, err
}

// replaceFile writes a file of that mode, whatever the umask is, whole or not at all. A symbolic link of that name is
// replaced, not followed.
func replaceFile(name string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(name), ".wid-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it is gone if all went well
	_, err = file.Write(content)
	if chmodErr := os.Chmod(file.Name(), mode); err == nil {
		err = chmodErr
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}
