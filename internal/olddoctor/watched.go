package doctor

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/redact"
)

// watchedClient takes note of how long reading and creating takes, and returns when the time is over, whatever the client
// does.
type watchedClient struct {
	client.Client
	who string
}

func (c watchedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return asked(ctx, c.who, obj, func(own client.Object) error { return c.Client.Get(ctx, key, own, opts...) })
}

func (c watchedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return asked(ctx, c.who, list, func(own client.ObjectList) error { return c.Client.List(ctx, own, opts...) })
}

func (c watchedClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return asked(ctx, c.who, obj, func(own client.Object) error { return c.Client.Create(ctx, own, opts...) })
}

// watchCluster has client and reader take note.
func (e *examination) watchCluster() {
	if e.Reader == nil {
		e.Reader = e.Client
	}
	e.Client, e.Reader = watchedClient{e.Client, e.apiServer()}, watched(e.Reader, e.apiServer())
}

// watchedReader is watchedClient for who only reads.
type watchedReader struct {
	client.Reader
	who string
}

func (r watchedReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	within, cancel := sooner(ctx)
	defer cancel()
	return asked(ctx, r.who, obj, func(own client.Object) error { return r.Reader.Get(within, key, own, opts...) })
}

func (r watchedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	within, cancel := sooner(ctx)
	defer cancel()
	return asked(ctx, r.who, list, func(own client.ObjectList) error { return r.Reader.List(within, own, opts...) })
}

// sooner ends a little before a request's context: a cache says then what it has waited for. The last of a run's own time is
// not divided.
func sooner(ctx context.Context) (context.Context, context.CancelFunc) {
	const part = 50
	end, ok := ctx.Deadline()
	if !ok || time.Until(end) < requestTimeout/2 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-time.Until(end)/part))
}

// isCacheEmpty knows the text of a manager's cache that could not be filled. Its error has no type of its own.
func isCacheEmpty(err error) bool {
	return apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Informer to sync")
}

// watched is nil if the reader is.
func watched(r client.Reader, who string) client.Reader {
	if r == nil {
		return nil
	}
	return watchedReader{r, who}
}

// asked has a call fill an object. A call that is given up has a copy, so that nobody else sees what it still does to it.
func asked[T runtime.Object](ctx context.Context, who string, into T, call func(own T) error) error {
	own, ok := into.DeepCopyObject().(T)
	if !ok {
		return call(into) // there is no such type
	}
	type outcome struct {
		err   error
		whole bool
	}
	o := ending(ctx, who, func() outcome { return outcome{call(own), true} },
		func(err error) outcome { return outcome{err, false} })
	if o.whole {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(own).Elem())
	}
	if errors.Is(o.err, context.DeadlineExceeded) {
		return &silence{who, o.err}
	}
	return withoutSecrets(ctx, o.err)
}

// cleaned is an error whose text repeats no secret. Checks cut the texts of errors, and no check of the whole report finds the
// beginning of a secret that a cut leaves.
type cleaned struct {
	error
	text string
}

func (c *cleaned) Error() string { return c.text }

func (c *cleaned) Unwrap() error { return c.error }

func withoutSecrets(ctx context.Context, err error) error {
	k := knownTo(ctx)
	if err == nil || k == nil {
		return err
	}
	text := redact.Clean(err.Error(), k.all()...)
	if text == err.Error() {
		return err
	}
	return &cleaned{err, text}
}

// silence is a time-out that says whose.
type silence struct {
	who string
	err error
}

func (s *silence) Error() string { return s.who + " has not answered in time" }

func (s *silence) Unwrap() error { return s.err }

// ending waits for work, but not for longer than the context: neither the plugin that logs a kubeconfig's user in nor a
// client's look-up of kinds knows one. What is given up goes on by itself until its own time-out.
func ending[T any](ctx context.Context, who string, work func() T, otherwise func(error) T) T {
	defer waiting(ctx, who)()
	return until(ctx, work, otherwise)
}

// until is ending for what takes note of the wait itself.
func until[T any](ctx context.Context, work func() T, otherwise func(error) T) T {
	if err := ctx.Err(); err != nil {
		return otherwise(err)
	}
	type outcome struct {
		result  T
		problem any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.problem = recover()
			done <- o
		}()
		o.result = work()
	}()
	select {
	case o := <-done:
		if o.problem != nil {
			panic(o.problem) // the check's own end
		}
		return o.result
	case <-ctx.Done():
		return otherwise(ctx.Err())
	}
}
