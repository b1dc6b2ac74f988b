//go:build unix

package credentials

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func passedSignals() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
}

// comesFromTerminal reports whether a key of the terminal causes the signal.
// The terminal sends it to every process in the foreground, and a second one
// makes some programs give up at once.
func comesFromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer terminal.Close()                                                  //nolint:errcheck // nothing was written
	foreground, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP) //nolint:gosec // a file descriptor fits
	return err == nil && foreground == unix.Getpgrp()
}
