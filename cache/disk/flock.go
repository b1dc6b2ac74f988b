//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disk

import (
	"io/fs"
	"syscall"
)

const supported = true

// owner returns the user that a file belongs to.
func owner(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}
