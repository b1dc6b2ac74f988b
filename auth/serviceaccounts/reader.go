package serviceaccounts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Reader holds the ServiceAccounts of a cluster. It is a Runnable of a manager, which runs it in every replica. It is safe for
// concurrent use.
type Reader struct {
	options Options
	source  cache.ListerWatcher
	store   *store
	state   *state
}

var (
	_ manager.Runnable               = (*Reader)(nil)
	_ manager.LeaderElectionRunnable = (*Reader)(nil)
	_ healthz.Checker                = (*Reader)(nil).Check
)

// New returns a Reader for the cluster of a configuration. Start it, or add it to a manager. New refuses malformed options
// without network access.
func New(config *rest.Config, o Options) (*Reader, error) {
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return NewForClient(c, o)
}

// NewForClient returns a Reader that uses a given client, such as a fake one in tests.
func NewForClient(c metadata.Interface, o Options) (*Reader, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	state := newState(o.MaxAge)
	r := &Reader{options: o, store: newStore(o.AnnotationPrefixes, state), state: state}
	accounts := c.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(o.Namespace)
	r.source = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.LabelSelector = o.LabelSelector
			list, err := accounts.List(ctx, opts)
			if err != nil {
				r.state.fail(err, true)
			}
			return list, err // contact counts once the whole list is stored
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.LabelSelector = o.LabelSelector
			w, err := accounts.Watch(ctx, opts)
			changesOnly := opts.SendInitialEvents == nil
			switch {
			case err != nil:
				r.state.fail(err, changesOnly) // an older API server refuses the other one, and a list follows
			case changesOnly:
				r.state.contact()
			}
			return w, err
		},
	}, c)
	return r, nil
}

// Start reads until the context is cancelled. After that Get fails. Start returns an error only if it was called before.
func (r *Reader) Start(ctx context.Context) error {
	if !r.state.start() {
		return errors.New("the reader of ServiceAccounts was started before")
	}
	defer r.state.end()
	options := cache.ReflectorOptions{Name: "workloadid/serviceaccounts"}
	cache.NewReflectorWithOptions(r.source, &metav1.PartialObjectMetadata{}, r.store, options).RunWithContext(ctx)
	return nil
}

// NeedLeaderElection makes a manager run the reader in every replica.
func (r *Reader) NeedLeaderElection() bool { return false }

// LastContact returns the time of the last contact with the API server, or the zero time. A contact is a finished list, the start
// of a watch after it, a change, or a bookmark. Bookmarks arrive about every minute.
func (r *Reader) LastContact() time.Time {
	now, _ := r.state.look()
	return now.contact
}

// Check is a healthz.Checker. It fails before the first list, after Start has returned, and from an error of list or watch until
// the next contact. Use it with Manager.AddReadyzCheck. As a liveness probe it would restart controllers during an outage of the
// API server, and their cached credentials would be lost.
func (r *Reader) Check(*http.Request) error {
	if now, _ := r.state.look(); now.failure != nil || !r.state.usable.Load() {
		return r.problem(now, errors.New("the ServiceAccounts have not been read yet"))
	}
	return nil
}

// WaitForSync waits for the first list, until the context expires or the Reader stops. It keeps waiting after a refusal, because
// the rights may be granted later.
func (r *Reader) WaitForSync(ctx context.Context) error {
	for {
		now, changed := r.state.look()
		switch {
		case now.ended:
			return r.problem(now, nil)
		case now.synced:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r.problem(now, ctx.Err())
		}
	}
}

// Get fills a *corev1.ServiceAccount with name, namespace, UID, resource version, deletion timestamp and the kept annotations.
// All callers share the annotations; do not modify them. An unknown ServiceAccount is a NotFound error, as from the API server.
//
// Before the first list, Get waits for at most Options.SyncTimeout, and not at all after the API server has refused the list.
// Then, after Start has returned, and after Options.MaxAge without contact, it returns an *auth.Error.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	sa, ok := obj.(*corev1.ServiceAccount)
	if !ok {
		return fmt.Errorf("the reader of ServiceAccounts cannot read a %T", obj)
	}
	if !r.covers(key.Namespace) {
		return apierrors.NewBadRequest(fmt.Sprintf("the reader of ServiceAccounts reads the namespace %q only, not %.100q",
			r.options.Namespace, key.Namespace))
	}
	return r.read(ctx, key, sa)
}

func (r *Reader) covers(namespace string) bool {
	return r.options.Namespace == "" || r.options.Namespace == namespace
}

func (r *Reader) read(ctx context.Context, key client.ObjectKey, sa *corev1.ServiceAccount) error {
	if !r.state.usable.Load() {
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	kept, ok := r.store.get(key)
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("serviceaccounts"), key.Name)
	}
	*sa = corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace, UID: kept.uid,
		ResourceVersion: kept.version, Annotations: kept.annotations, DeletionTimestamp: kept.deleted}}
	return nil
}

// wait waits for the first list while it may still arrive.
func (r *Reader) wait(ctx context.Context) error {
	timer := time.NewTimer(r.options.SyncTimeout)
	defer timer.Stop()
	for {
		now, changed := r.state.look()
		switch {
		case now.ended, now.stale, now.refused && !now.synced:
			return r.problem(now, nil)
		case now.synced:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r.problem(now, ctx.Err())
		case <-timer.C:
			return r.problem(now, fmt.Errorf("the ServiceAccounts have not been read within %s", r.options.SyncTimeout))
		}
	}
}
