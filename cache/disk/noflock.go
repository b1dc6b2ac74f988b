//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package disk

import (
	"errors"
	"io/fs"
	"os"
)

const supported = false

func owner(fs.FileInfo) int { return -1 }

func tryLock(*os.File) error { return errors.New("files cannot be locked on this system") }
