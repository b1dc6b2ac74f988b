package serviceaccounts

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options say what to keep. The zero value keeps the ServiceAccounts of all namespaces with all their annotations.
type Options struct {
	// Namespace is the only one to read. Empty: all.
	Namespace string
	// LabelSelector picks ServiceAccounts, as a shard of a controller may want. Empty: all. The others count as not found.
	LabelSelector string
	// AnnotationPrefixes are those of the annotations to keep: list all that the providers in use read, or they will find
	// them missing. Nil: all but the one in which kubectl keeps the whole object.
	AnnotationPrefixes []string
}

// Reader has the ServiceAccounts of a cluster. It is a Runnable of a manager, which runs it in
// every replica, and is safe for concurrent use.
type Reader struct {
	source  cache.ListerWatcher
	store   *store
	started atomic.Bool
	failure atomic.Pointer[error] // of the last attempt to list
}

var (
	_ manager.Runnable               = (*Reader)(nil)
	_ manager.LeaderElectionRunnable = (*Reader)(nil)
)

// New returns a Reader for the cluster of a configuration. Start it, or add it to a manager.
func New(config *rest.Config, o Options) (*Reader, error) {
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return NewForClient(c, o), nil
}

// NewForClient returns a Reader that uses a given client, such as a fake one in tests.
func NewForClient(c metadata.Interface, o Options) *Reader {
	r := &Reader{store: newStore(o.AnnotationPrefixes)}
	accounts := c.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(o.Namespace)
	r.source = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.LabelSelector = o.LabelSelector
			list, err := accounts.List(ctx, opts)
			return list, r.remember(err)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.LabelSelector = o.LabelSelector
			w, err := accounts.Watch(ctx, opts)
			return w, r.remember(err)
		},
	}, c)
	return r
}

func (r *Reader) remember(err error) error {
	if err != nil {
		r.failure.Store(&err)
	}
	return err
}

// Start reads until the context ends. It returns an error only if it was started before.
func (r *Reader) Start(ctx context.Context) error {
	if r.started.Swap(true) {
		return errors.New("the reader of ServiceAccounts was started before")
	}
	cache.NewReflectorWithOptions(r.source, &metav1.PartialObjectMetadata{}, r.store, cache.ReflectorOptions{Name: "workloadid/serviceaccounts"}).
		RunWithContext(ctx)
	return nil
}

// NeedLeaderElection has a manager run the reader in every replica.
func (r *Reader) NeedLeaderElection() bool { return false }

// WaitForSync waits until all ServiceAccounts have been read once, or until the context ends.
func (r *Reader) WaitForSync(ctx context.Context) error {
	select {
	case <-r.store.synced:
		return nil
	default:
	}
	if !r.started.Load() {
		return errors.New("the reader of ServiceAccounts has not been started: add it to the manager")
	}
	select {
	case <-r.store.synced:
		return nil
	case <-ctx.Done():
	}
	if failure := r.failure.Load(); failure != nil {
		return fmt.Errorf("list and watch ServiceAccounts: %w", *failure)
	}
	return fmt.Errorf("list and watch ServiceAccounts: %w", ctx.Err())
}

// Get fills in a *corev1.ServiceAccount with what is kept, after waiting for the first reading. It shares its annotations
// with all other callers: do not change them. One that is unknown is a NotFound error, as of the API server.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	sa, ok := obj.(*corev1.ServiceAccount)
	if !ok {
		return fmt.Errorf("the reader of ServiceAccounts cannot read a %T", obj)
	}
	if err := r.WaitForSync(ctx); err != nil {
		return err
	}
	kept, ok := r.store.get(key)
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("serviceaccounts"), key.Name)
	}
	*sa = corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace,
		UID: kept.uid, Annotations: kept.annotations, DeletionTimestamp: kept.deleted}}
	return nil
}

// Client returns a client that reads ServiceAccounts with Get from r, and leaves everything else to base.
func (r *Reader) Client(base client.Client) client.Client { return &readingClient{base, r} }

type readingClient struct {
	client.Client
	reader *Reader
}

// Get implements client.Reader.
func (c *readingClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*corev1.ServiceAccount); ok {
		return c.reader.Get(ctx, key, obj, opts...)
	}
	return c.Client.Get(ctx, key, obj, opts...)
}
