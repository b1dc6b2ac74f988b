package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// terminal returns both ends of a terminal.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	var number, locked int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &locked} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// Ctrl-C reaches the command once, from the terminal or from wid, and the
// command decides how it ends.
func TestExecPassesInterruptsOnce(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	args := append([]string{"exec", "--provider=aws"}, w.inHand(t)...)
	for _, row := range []struct {
		name       string
		atTerminal bool
	}{{"at a terminal", true}, {"without a terminal", false}} {
		t.Run(row.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), filepath.Join(w.home, "bin", "wid"), //nolint:gosec // the test's own
				append(args, "--", os.Args[0], "")...)
			cmd.Env = append(append(os.Environ(), w.env...), asProgram+"=interrupts")
			said, output := io.Pipe()
			cmd.Stdout, cmd.Stderr = output, output
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			interrupt := func() error { return cmd.Process.Signal(os.Interrupt) }
			if row.atTerminal {
				person, program := terminal(t)
				cmd.Stdin, cmd.SysProcAttr.Setctty = program, true
				// wid gets its own interrupt after the command, which else might
				// take two for one.
				interrupt = func() error {
					if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
						return err
					}
					if _, err := syscall.Wait4(cmd.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil {
						return err
					}
					_, err := person.WriteString("\x03")
					return err
				}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await := func(word string) {
				line := make([]byte, 100)
				if n, err := said.Read(line); err != nil || strings.TrimSpace(string(line[:n])) != word {
					t.Fatalf("got %q, %v; want %q", line[:n], err, word)
				}
			}
			await("ready")
			if err := interrupt(); err != nil {
				t.Fatal(err)
			}
			await("interrupted")
			for _, s := range []os.Signal{syscall.SIGCONT, syscall.SIGTERM} {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			go io.Copy(io.Discard, said) //nolint:errcheck // a second interrupt, which the code shows
			_ = cmd.Wait()               // the code tells
			if code := cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("got %d interrupts, or the exit code of wid; want 1", code)
			}
		})
	}
}
