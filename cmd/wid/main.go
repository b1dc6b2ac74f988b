// Command wid is the library at the command line. docs/wid.md shows how other programs use it as a plugin.
//
//	wid token                                          credentials of any provider
//	wid doctor                                         why there are none
//	wid doctor bootstrap|registration|pod-identity     why a machine, a cluster or a pod cannot join or has none
//	wid exec-credential, kubeconfig                    for kubectl and client-go
//	wid docker-credential, git-credential              for docker and git
//	wid credential-process                             for the AWS SDKs
//	wid kubelet-credential-provider                    for the kubelet
//	wid bootstrap create|list|delete|generate|extend|join-command|discover|publish
//	wid hub init|token|accept|deny|status|cleanup|policies
//	wid join, unjoin                                   clusters of a hub
//	wid pod-identity trust-policy                      IAM roles of pods
//	wid version, completion
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/workloadid/workloadid/auth"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	stderr := os.Stderr          // see relayPlugin
	root := newRoot()
	root.SetErr(stderr)
	root.SetArgs(argumentsOf(os.Args))
	err := root.ExecuteContext(ctx)
	code := 0
	if err != nil {
		var status exitStatus
		if !errors.As(err, &status) { // its report is printed already
			_, _ = fmt.Fprintln(stderr, "wid:", err) // stderr is the last resort
		}
		code = exitCode(ctx, err)
	}
	stop()
	os.Exit(code)
}

func newRoot() *cobra.Command { return (&app{}).newRoot() }

func (a *app) newRoot() *cobra.Command {
	root := group("wid", "Kubernetes identities at the command line", newBootstrap(), newHub(), newJoin(), newUnjoin(), newPodIdentity(),
		a.newToken(), a.newDoctor(), a.newExecCredential(), a.newKubeconfig(), a.newDockerCredential(), a.newGitCredential(),
		a.newCredentialProcess(), a.newKubeletProvider(), newVersion())
	root.AddCommand(newCompletion(root))
	root.Long = root.Short + ".\n\n" + exitCodes
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = strings.TrimPrefix(buildVersion().String(), "wid ")
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(wrongFlag)
	finish(root)
	return root
}

func wrongFlag(cmd *cobra.Command, err error) error {
	return usagef("%v; see %s --help", err, cmd.CommandPath())
}

// app holds what the commands for credentials share.
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

// usageError reports wrong usage.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exitCode returns the code for the kind of error.
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

// argumentsOf inserts docker-credential if the program runs as docker-credential-wid.
func argumentsOf(argv []string) []string {
	name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	if name == "docker-credential-wid" {
		return append([]string{"docker-credential"}, argv[1:]...)
	}
	return argv[1:]
}

// run completes the flags, bounds the time, and writes the whole answer, or nothing after an error.
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

// grace lets work end after its context and return a better error.
const grace = time.Second

var errInterrupted = errors.New("interrupted")

// within returns soon after its context ends, and sooner after an interrupt, even if the work ignores contexts, as named pipes and
// exec plugins do. An exec plugin may outlive this program; see relay.
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
	interrupted, patience := errors.Is(ctx.Err(), context.Canceled), grace
	if interrupted {
		patience = grace / 5
	}
	select {
	case o := <-done:
		if interrupted && !errors.Is(o.err, errInterrupted) {
			return nil, errInterrupted
		}
		return o.answer, o.err
	case <-time.After(patience):
		if interrupted {
			return nil, errInterrupted
		}
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Err: ctx.Err(), Message: "gave up waiting for a file, a program or the network",
			Remedy: "check what does not answer, or raise --timeout"}
	}
}

// oneLine makes foreign text fit for a message, without the user part of URLs: client-go quotes a proxy with its password.
func oneLine(s string) string {
	return userInfo.ReplaceAllString(strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)), "://[redacted]@")
}

var userInfo = regexp.MustCompile(`://[^/@\s"]*@`)

// inputOf returns standard input, and refuses a terminal.
func inputOf(cmd *cobra.Command) (io.Reader, error) {
	in := cmd.InOrStdin()
	if file, ok := in.(*os.File); ok && term.IsTerminal(int(file.Fd())) { //nolint:gosec // a file descriptor fits
		return nil, usagef("standard input is a terminal, but %s reads its request there; see --help", cmd.CommandPath())
	}
	return in, nil
}
