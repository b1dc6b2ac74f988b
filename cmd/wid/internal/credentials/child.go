package credentials

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// runChild passes signals on to the child. It returns the exit code of the
// child as an error, as shells do: 128 and the number of the signal that ended
// it.
func runChild(ctx context.Context, child *exec.Cmd) error {
	signals := make(chan os.Signal, 8)
	// The child of a program that ignores a signal, such as nohup, ignores it too.
	signal.Notify(signals, slices.DeleteFunc(passedSignals(), signal.Ignored)...)
	defer signal.Stop(signals)
	if ctx.Err() != nil { // before there was a child
		return cli.ErrInterrupted
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("the command cannot run: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			if !comesFromTerminal(s) { // which sends it to the child too
				_ = child.Process.Signal(s) // it may have ended
			}
		case err := <-ended:
			return exitOf(child.ProcessState, err)
		}
	}
}

func exitOf(state *os.ProcessState, err error) error {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return cli.ExitStatus(128 + int(status.Signal()))
	case state.ExitCode() > 0:
		return cli.ExitStatus(state.ExitCode())
	}
	return err
}
