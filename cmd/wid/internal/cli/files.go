package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// MaxFile bounds files that are read whole, in bytes.
const MaxFile = 1 << 20

// ErrTooLarge is the error of ReadBounded for a file above its limit.
var ErrTooLarge = errors.New("it is larger than a megabyte")

// ReadBounded reads a file that a flag names.
func ReadBounded(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err == nil && len(content) > MaxFile {
		err = ErrTooLarge
	}
	return content, err
}

// ReplaceFile writes a file of that mode, whatever the umask is, whole or not at all. A symbolic link of that name is
// replaced, not followed.
func ReplaceFile(name string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(name), ".wid-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it is gone if all went well
	_, err = file.Write(content)
	if err := errors.Join(err, file.Chmod(mode), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}
