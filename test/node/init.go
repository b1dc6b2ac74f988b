//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// runInit is process 1 of the node. It starts the manager and collects orphans,
// such as the shims of containerd. It ends with the manager, and the kernel
// then ends all processes of the node.
func runInit(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	manager := exec.Command(self, append([]string{asManager}, args...)...) //nolint:gosec,noctx // this program
	manager.Stdout, manager.Stderr = os.Stdout, os.Stderr
	if err := manager.Start(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			_ = manager.Process.Signal(s) // it may have ended
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == manager.Process.Pid && (status.Exited() || status.Signaled()):
			if !status.Exited() || status.ExitStatus() != 0 {
				os.Exit(1) // the manager has said why
			}
			return nil
		}
	}
}
