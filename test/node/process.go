//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// process is a program of the node that runs in the background. It may be
// stopped and started again.
type process struct {
	name, log string
	args, env []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// start starts the program. Its output is appended to its log.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()                              //nolint:errcheck // the program has its own copy
	p.cmd = exec.Command(p.args[0], p.args[1:]...) //nolint:gosec,noctx // ends with the node
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), p.env...), out, out
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.done = done
	go func(cmd *exec.Cmd) {
		p.err = cmd.Wait()
		close(done)
	}(p.cmd)
	return nil
}

// kill ends the program at once and waits for its end.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	p.done = nil
	return nil
}

// ended returns an error if the program has ended by itself.
func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		return nil
	}
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended: %v; the end of its log:\n%s", p.name, p.err, tail(p.log, 20))
	default:
		return nil
	}
}

// tail returns the last lines of a file.
func tail(file string, lines int) string {
	content, err := os.ReadFile(file) //nolint:gosec // a log of the node
	if err != nil {
		return err.Error()
	}
	all := strings.Split(last(string(content), lines), "\n")
	for i, line := range all {
		all[i] = line[:min(len(line), 300)]
	}
	return strings.Join(all, "\n")
}

// command runs a program to its end and returns its standard output. The error
// holds its standard error.
func command(ctx context.Context, args ...string) (string, error) {
	return runCommand(exec.CommandContext(ctx, args[0], args[1:]...)) //nolint:gosec // programs of the node
}

func runCommand(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err,
			strings.TrimSpace(stderr.String()+"\n"+stdout.String()))
	}
	return stdout.String(), nil
}

// shell runs lines of sh, each of which must succeed.
func shell(ctx context.Context, lines ...string) error {
	_, err := command(ctx, "sh", "-ec", strings.Join(lines, "\n"))
	return err
}
