//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

// TryLock fails: the system has no lock that ends with its process.
func TryLock(*os.File) error { return errors.New("files cannot be locked on this system") }
