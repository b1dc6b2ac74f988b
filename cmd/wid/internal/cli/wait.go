package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
)

const (
	// PollInterval is the time between two looks.
	PollInterval = 250 * time.Millisecond
	// Quiet is the time before a command says what it waits for.
	Quiet       = 2 * time.Second
	noticeEvery = 10 * time.Second
)

// Await polls until done returns "" or an error, or until the context ends. done names what is missing. await reports that after quiet, at
// once when it changes, and every noticeEvery.
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
		case !now.Before(next) || said != "" && said != waitingFor:
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

// During awaits work that waits by itself, and returns its error.
func During(ctx context.Context, cmd *cobra.Command, waitingFor func() string, work func() error) (err error) {
	done := make(chan error, 1)
	go func() { done <- work() }()
	_ = Await(ctx, cmd, func() (string, error) { // ends without an error
		select {
		case err = <-done:
			return "", nil
		default:
		}
		if ctx.Err() == nil {
			return waitingFor(), nil
		}
		err = <-done
		return "", nil
	})
	if errors.Is(ctx.Err(), context.Canceled) {
		return unfinished(ctx, waitingFor())
	}
	return err
}

// unfinished is the error of a wait that the deadline or the user ended.
func unfinished(ctx context.Context, missing string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w while waiting %s", ErrInterrupted, missing)
	}
	return &auth.Error{Reason: auth.ErrUnavailable, Err: ctx.Err(), Message: "gave up waiting " + missing, Remedy: "correct that, or raise --timeout"}
}

func deadlineOf(ctx context.Context) string {
	if deadline, ok := ctx.Deadline(); ok {
		return " until " + deadline.Format(time.TimeOnly)
	}
	return ""
}

// Announce says what requests of the config's clients wait for: after Quiet, and every noticeEvery. The lookup of kinds has no context, so
// its lines name no deadline.
func Announce(config *rest.Config, out io.Writer) {
	if out != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return announcing{next, out} })
	}
}

type announcing struct {
	next http.RoundTripper
	out  io.Writer
}

func (a announcing) RoundTrip(r *http.Request) (*http.Response, error) {
	answered := make(chan struct{})
	var notices sync.WaitGroup
	defer notices.Wait()
	defer close(answered)
	notices.Go(func() {
		for after := Quiet; ; after = noticeEvery {
			select {
			case <-answered:
				return
			case <-r.Context().Done():
				return
			case <-time.After(after):
				_, _ = fmt.Fprintf(a.out, "wid: waiting%s for %s://%s to answer\n", deadlineOf(r.Context()), r.URL.Scheme, r.URL.Host) // nothing depends on it
			}
		}
	})
	return a.next.RoundTrip(r)
}
