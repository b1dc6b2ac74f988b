package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/workloadid/workloadid/auth"
)

// app is what the commands for credentials share.
type app struct {
	// httpClient makes the requests to providers. Nil: theirs.
	httpClient *http.Client
	stderr     io.Writer
}

// Exit codes. docs/wid.md explains them.
const (
	exitOther         = 1
	exitUsage         = 2
	exitMisconfigured = 10
	exitDenied        = 11
	exitThrottled     = 12
	exitUnavailable   = 13
	exitInterrupted   = 130
)

const exitCodes = `Exit codes (wid doctor has 0 to 3, wid docker-credential 0 and 1):
  0    success
  1    any other error, such as standard output that cannot be written
  2    wrong flags or arguments
  10   misconfigured: correct what the message names
  11   denied by a policy, Kubernetes or the provider
  12   throttled
  13   unavailable: no usable answer, or an expired login
  130  interrupted by SIGINT or SIGTERM`

// usageError is about how the program was called.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exitCode says what kind of error ended the program.
func exitCode(ctx context.Context, err error) int {
	var usage *usageError
	var status exitStatus
	var docker *dockerError
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &docker):
		return exitOther
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, auth.ErrMisconfigured):
		return exitMisconfigured
	case errors.Is(err, auth.ErrDenied):
		return exitDenied
	case errors.Is(err, auth.ErrThrottled):
		return exitThrottled
	case errors.Is(err, auth.ErrUnavailable):
		return exitUnavailable
	}
	return exitOther
}

func (a *app) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, "wid: "+format+"\n", args...)
}

// argumentsOf has the program behave as docker-credential-wid if it is called so.
func argumentsOf(argv []string) []string {
	name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	if name == "docker-credential-wid" {
		return append([]string{"docker-credential"}, argv[1:]...)
	}
	return argv[1:]
}

// run completes the flags, bounds the time, and writes the answer: all of it or, if anything fails, nothing.
func (id *identity) run(cmd *cobra.Command, work func(ctx context.Context) ([]byte, error)) error {
	return id.inTermsOfFlags(id.answer(cmd, work))
}

func (id *identity) answer(cmd *cobra.Command, work func(ctx context.Context) ([]byte, error)) error {
	if id.stderr == nil {
		id.stderr = cmd.ErrOrStderr()
	}
	if err := id.complete(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), id.timeout)
	defer cancel()
	content, err := within(ctx, work)
	id.relay.Load().end()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(content)
	return err
}

// grace is for what ends with its context and can say more about it.
const grace = time.Second

var errInterrupted = errors.New("interrupted")

// within ends soon after its context even if the work does not, and at once if somebody interrupts it: a named pipe and
// another program know nothing of contexts. What is left behind ends with this program, but for an exec plugin of the
// kubeconfig: client-go does not say which process that is. It goes on by itself and holds none of our standard streams (see
// relay), so that nobody waits for it.
func within(ctx context.Context, work func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	type outcome struct {
		answer []byte
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		answer, err := work(ctx)
		done <- outcome{answer, err}
	}()
	select {
	case o := <-done:
		return o.answer, o.err
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, errInterrupted
	}
	select {
	case o := <-done:
		return o.answer, o.err
	case <-time.After(grace):
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Err: ctx.Err(),
			Message: "gave up waiting for a file, a program or the network",
			Remedy:  "look at what does not answer, or give it more time with --timeout"}
	}
}

// oneLine makes the text of somebody else's error fit for a message. It leaves out the user's part of URLs: client-go quotes the
// proxy of a kubeconfig with its password.
func oneLine(s string) string {
	return userInfo.ReplaceAllString(strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)), "://[redacted]@")
}

var userInfo = regexp.MustCompile(`://[^/@\s"]*@`)

// inputOf is standard input, unless it is a terminal: nobody types a request.
func inputOf(cmd *cobra.Command) (io.Reader, error) {
	in := cmd.InOrStdin()
	if file, ok := in.(*os.File); ok && term.IsTerminal(int(file.Fd())) { //nolint:gosec // a file descriptor fits
		return nil, usagef("standard input is a terminal, but %s reads its request there; see --help", cmd.CommandPath())
	}
	return in, nil
}
