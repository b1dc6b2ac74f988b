// Package cli holds what the command families of wid share: errors and exit
// codes, help, output, kubeconfigs, and waiting.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/bootstrap"
)

// Grace lets work end after its context and return a better error.
const Grace = time.Second

// ErrInterrupted is the error of work that SIGINT or SIGTERM ended.
var ErrInterrupted = errors.New("interrupted")

// Within returns soon after its context ends, and sooner after an interrupt,
// even if the work ignores contexts, as named pipes and exec plugins do. An
// exec plugin may outlive this program; see relay.
func Within(ctx context.Context, work func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	answer, ok, err := WithGrace(ctx, Grace, work)
	interrupted := errors.Is(ctx.Err(), context.Canceled)
	switch {
	case ok && (!interrupted || errors.Is(err, ErrInterrupted)):
		return answer, err
	case interrupted:
		return nil, ErrInterrupted
	}
	return nil, &auth.Error{Reason: auth.ErrUnavailable, Err: ctx.Err(),
		Message: "gave up waiting for a file, a program or the network",
		Remedy:  "check what does not answer, or raise --timeout"}
}

// WithGrace returns the result of work, or false if the work ignores its
// context and goes on for the grace after the context has ended, or for a fifth
// of it after an interrupt.
func WithGrace[T any](ctx context.Context, grace time.Duration, work func(ctx context.Context) (T, error),
) (result T, ok bool, err error) {
	type outcome struct {
		result T
		err    error
	}
	done, late := make(chan outcome, 1), make(chan struct{})
	go func() {
		result, err := work(ctx)
		done <- outcome{result, err}
	}()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			grace /= 5
		}
		time.AfterFunc(grace, func() { close(late) })
	})()
	select {
	case o := <-done:
		return o.result, true, o.err
	case <-late:
		return result, false, nil
	}
}

// relayTime bounds the wait for the last output of a plugin.
const relayTime = 500 * time.Millisecond

// relay copies the standard error of exec plugins. A plugin that hangs outlives
// this program; with our own standard error it would keep the reader of a pipe
// waiting. end waits for the output of plugins that have ended.
func relay(config *rest.Config, to io.Writer) (end func(), err error) {
	if config.ExecProvider == nil || IsTerminal(os.Stderr) { // a terminal never ends, and plugins may detect it
		return func() {}, nil
	}
	out, plugins, err := os.Pipe()
	if err != nil {
		return func() {}, err
	}
	stderr := os.Stderr // client-go reads it during the set-up only, and keeps the plugin for all clients of the config
	os.Stderr = plugins
	_, err = config.TransportConfig()
	os.Stderr = stderr
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer out.Close()                            //nolint:errcheck // nothing was written
		_, _ = io.Copy(struct{ io.Writer }{to}, out) // stderr is the last resort
	}()
	return func() {
		_ = plugins.Close() // nothing is kept back
		select {
		case <-done:
		case <-time.After(relayTime):
		}
	}, err
}

// OneLine makes foreign text fit for a message, without the user part of URLs:
// client-go quotes a proxy with its password.
func OneLine(s string) string {
	return userInfo.ReplaceAllString(strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)), "://[redacted]@")
}

var userInfo = regexp.MustCompile(`://[^/@\s"]*@`)

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) //nolint:gosec // a file descriptor fits
}

// InputOf returns standard input, and refuses a terminal.
func InputOf(cmd *cobra.Command) (io.Reader, error) {
	in := cmd.InOrStdin()
	if IsTerminal(in) {
		return nil, Usagef("standard input is a terminal, but %s reads its request there; see --help", cmd.CommandPath())
	}
	return in, nil
}

// DefaultTimeout bounds commands that do not wait for another program.
const DefaultTimeout = time.Minute

// ReplaceFile writes a file of that mode, whatever the umask is, whole or not
// at all. A symbolic link of that name is replaced, not followed.
func ReplaceFile(name string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(name), ".wid-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it is gone if all went well
	_, err = file.Write(content)
	if err := errors.Join(err, file.Chmod(mode), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

// Exit codes. docs/wid.md explains them.
const (
	ExitOther         = 1
	ExitUsage         = 2
	ExitMisconfigured = 10
	ExitDenied        = 11
	ExitThrottled     = 12
	ExitUnavailable   = 13
	ExitInterrupted   = 130
)

// UsageError reports wrong usage.
type UsageError struct{ message string }

func (e *UsageError) Error() string { return e.message }

// Usagef returns the error of wrong usage.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// ExitCode returns the code for the kind of error.
func ExitCode(ctx context.Context, err error) int {
	var status ExitStatus
	switch {
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() != nil:
		return ExitInterrupted
	case errors.As(err, new(*UsageError)):
		return ExitUsage
	case errors.Is(err, auth.ErrMisconfigured):
		return ExitMisconfigured
	case errors.Is(err, auth.ErrDenied):
		return ExitDenied
	case errors.Is(err, auth.ErrThrottled):
		return ExitThrottled
	case errors.Is(err, auth.ErrUnavailable):
		return ExitUnavailable
	}
	return ExitOther
}

// ExitStatus ends the program with a code after its answer has been written. It
// wins over an interrupt, which may have reached a child.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

const (
	// PollInterval is the time between two looks.
	PollInterval = 250 * time.Millisecond
	// Quiet is the time before a command says what it waits for.
	Quiet       = 2 * time.Second
	noticeEvery = 10 * time.Second
)

// Await polls until done returns "" or an error, or until the context ends.
// done names what is missing. Await reports that after Quiet, at once when it
// changes, and every noticeEvery.
func Await(ctx context.Context, cmd *cobra.Command, done func() (waitingFor string, err error)) error {
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	missing, said, next := "", "", time.Now().Add(Quiet)
	for {
		waitingFor, err := done()
		switch now := time.Now(); {
		case err == nil && waitingFor == "":
			return nil
		case ctx.Err() != nil && missing != "":
			return unfinished(ctx, missing)
		case err != nil:
			return err
		case said != "" && said != waitingFor || !now.Before(next):
			cmd.PrintErrf("wid: waiting%s %s\n", deadlineOf(ctx), waitingFor)
			said, next = waitingFor, now.Add(noticeEvery)
		}
		missing = waitingFor
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// unfinished is the error of a wait that the deadline or the user ended.
func unfinished(ctx context.Context, missing string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w while waiting %s", ErrInterrupted, missing)
	}
	return &auth.Error{Reason: auth.ErrUnavailable, Err: ctx.Err(), Message: "gave up waiting " + missing,
		Remedy: "correct that, or raise --timeout"}
}

func deadlineOf(ctx context.Context) string {
	if deadline, ok := ctx.Deadline(); ok {
		return " until " + deadline.Format(time.TimeOnly)
	}
	return ""
}

// Discover finds a cluster by token, and says once for each cause what it waits
// for. It gives up after patience if the cluster signs for other tokens only,
// and without patience waits on. It returns the error of bootstrap.Discover,
// which names the likely causes.
func Discover(ctx context.Context, cmd *cobra.Command, servers []string, token bootstrap.Token, patience time.Duration,
	opts ...bootstrap.DiscoverOption,
) (*bootstrap.ClusterInfo, error) {
	missing, said, limit := "its first answer", map[string]bool{}, ""
	opts = append(slices.Clip(opts), bootstrap.WithProgress(func(waitingFor string) {
		if ctx.Err() != nil { // an interrupt says nothing about the cluster
			return
		}
		if missing = waitingFor; !said[waitingFor] {
			said[waitingFor] = true
			cmd.PrintErrf("wid: waiting%s%s for cluster-info: %s\n", deadlineOf(ctx), limit, waitingFor)
		}
	}))
	if patience > 0 {
		limit = fmt.Sprintf(", or %s for a signature with this token,", patience)
		opts = append(opts, bootstrap.WithTokenPatience(patience))
	}
	info, err := bootstrap.Discover(ctx, servers, token, opts...)
	switch {
	case err == nil:
		return info, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, unfinished(ctx, "for cluster-info: "+missing)
	}
	e := Problem(auth.ErrMisconfigured,
		"an administrator of that cluster finds what is missing there with: wid bootstrap check --context CLUSTER", "%s",
		OneLine(err.Error()))
	e.Operation, e.Err = "find the cluster's CA", err
	address := &bootstrap.AddressError{}
	errors.As(err, &address)
	switch {
	case address.Cause == bootstrap.CauseCertificateForAnotherName && cmd.Flags().Lookup("tls-server-name") != nil:
		e.Reason, e.Remedy = auth.ErrDenied, "pass the name with --tls-server-name"
	case address.Cause == bootstrap.CauseAnonymousForbidden:
		e.Remedy = "an administrator of that cluster publishes cluster-info with: wid bootstrap publish --context CLUSTER"
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason = auth.ErrUnavailable
	case errors.Is(err, bootstrap.ErrPins) || errors.Is(err, bootstrap.ErrSignature) ||
		address.Cause == bootstrap.CauseNotSignedForToken:
		e.Reason = auth.ErrDenied
	}
	return nil, e
}

// Announce says what requests of the config's clients wait for, after Quiet.
// The lookup of kinds has no context, so its lines name no deadline.
func Announce(config *rest.Config, out io.Writer) {
	if out == nil {
		return
	}
	wrap(config, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		said := make(chan struct{})
		notice := time.AfterFunc(Quiet, func() {
			defer close(said)
			// nothing depends on it
			_, _ = fmt.Fprintf(out, "wid: waiting%s for %s://%s to answer\n", deadlineOf(r.Context()), r.URL.Scheme, r.URL.Host)
		})
		defer func() {
			if !notice.Stop() {
				<-said // writers are not shared with what the caller says next
			}
		}()
		return next.RoundTrip(r)
	})
}
