package bootstrap

import (
	"os"
	"path/filepath"
)

// writeAtomically replaces a file by one with mode 0600, or leaves it as it is.
func writeAtomically(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it is gone already if all went well
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
