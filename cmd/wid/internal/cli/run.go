// Package cli holds what the command families of wid share: errors and exit codes, help, output, kubeconfigs, and waiting.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/workloadid/workloadid/auth"
)

// Grace lets work end after its context and return a better error.
const Grace = time.Second

// ErrInterrupted is the error of work that SIGINT or SIGTERM ended.
var ErrInterrupted = errors.New("interrupted")

// Within returns soon after its context ends, and sooner after an interrupt, even if the work ignores contexts, as named pipes and
// exec plugins do. An exec plugin may outlive this program; see relay.
func Within(ctx context.Context, work func(ctx context.Context) ([]byte, error)) ([]byte, error) {
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
	interrupted, patience := errors.Is(ctx.Err(), context.Canceled), Grace
	if interrupted {
		patience = Grace / 5
	}
	select {
	case o := <-done:
		if interrupted && !errors.Is(o.err, ErrInterrupted) {
			return nil, ErrInterrupted
		}
		return o.answer, o.err
	case <-time.After(patience):
		if interrupted {
			return nil, ErrInterrupted
		}
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Err: ctx.Err(), Message: "gave up waiting for a file, a program or the network",
			Remedy: "check what does not answer, or raise --timeout"}
	}
}

// OneLine makes foreign text fit for a message, without the user part of URLs: client-go quotes a proxy with its password.
func OneLine(s string) string {
	return userInfo.ReplaceAllString(strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)), "://[redacted]@")
}

var userInfo = regexp.MustCompile(`://[^/@\s"]*@`)

// InputOf returns standard input, and refuses a terminal.
func InputOf(cmd *cobra.Command) (io.Reader, error) {
	in := cmd.InOrStdin()
	if file, ok := in.(*os.File); ok && term.IsTerminal(int(file.Fd())) { //nolint:gosec // a file descriptor fits
		return nil, Usagef("standard input is a terminal, but %s reads its request there; see --help", cmd.CommandPath())
	}
	return in, nil
}

// DefaultTimeout bounds commands that do not wait for another program.
const DefaultTimeout = time.Minute
