package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// SetupWithManager adds the add-ons to a manager of the managed cluster. As many add-ons are registered at a time as there are workers, so
// that a driver that hangs for one does not delay the others. It watches metadata alone: that of the cluster's add-ons on the hub, and that
// of their Secrets in each namespace which they use.
func (a *AddOns) SetupWithManager(mgr ctrl.Manager, workers int) error {
	if workers < 1 {
		return fmt.Errorf("%d workers: add-ons need at least one", workers)
	}
	c, err := controller.New("registration-addons", mgr, controller.Options{Reconciler: a, MaxConcurrentReconciles: workers, SkipNameValidation: new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minWait, maxWait)})
	if err != nil {
		return err
	}
	local, err := client.NewWithWatch(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	started := make(chan workqueue.TypedRateLimitingInterface[reconcile.Request], 1)
	err = c.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		started <- queue
		return nil
	}))
	if err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case queue := <-started:
			a.watch(ctx, local, func(addOn string) {
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: a.agent.opts.Cluster, Name: addOn}})
			})
		case <-ctx.Done():
		}
		return nil
	}))
}

// watch requests add-ons that change, on the hub or by their Secrets. It returns when ctx ends and all its watches have.
func (a *AddOns) watch(ctx context.Context, local client.WithWatch, request func(addOn string)) {
	var group sync.WaitGroup
	follow := func(namespace string) { group.Go(func() { a.watchSecrets(ctx, local, namespace, request) }) }
	a.mu.Lock()
	a.follow = follow
	for namespace := range a.used {
		follow(namespace)
	}
	a.mu.Unlock()
	a.watchHub(ctx, request)
	a.mu.Lock()
	a.follow = nil
	a.mu.Unlock()
	group.Wait()
}

// remember records a requested add-on, and namespaces where it may have Secrets and the agent has the rights.
func (a *AddOns) remember(addOn string, namespaces ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.places[addOn] == nil {
		a.places[addOn] = map[string]bool{a.opts.Namespace: true}
	}
	for _, namespace := range namespaces {
		a.places[addOn][namespace] = true
		if !a.used[namespace] && a.follow != nil {
			a.follow(namespace)
		}
		a.used[namespace] = true
	}
}

// forget removes all Secrets of an add-on that is gone.
func (a *AddOns) forget(ctx context.Context, addOn string) error {
	if err := a.removeUnused(ctx, addOn, nil); err != nil {
		return err
	}
	a.mu.Lock()
	delete(a.places, addOn)
	a.mu.Unlock()
	a.agent.events.forget(addOn)
	for _, d := range []registration.Driver{a.opts.KubeClient, a.opts.CustomSigner} {
		if f, ok := d.(registration.Forgetter); ok {
			f.Forget(addOn)
		}
	}
	return nil
}

// removeUnused deletes the Secrets of an add-on that no item has. Where the namespace has changed, the old Secret stays until the
// new one holds a credential.
func (a *AddOns) removeUnused(ctx context.Context, addOn string, used map[string]*addOnSecret) error {
	var errs []error
	for _, namespace := range a.placesOf(addOn) {
		list := metadataList(corev1.SchemeGroupVersion.WithKind("SecretList"))
		err := a.agent.opts.Local.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(a.labels(addOn)))
		if apierrors.IsForbidden(err) {
			continue
		}
		for i := range list.Items {
			o := &list.Items[i]
			if secret := used[o.Name]; secret != nil && (secret.namespace == namespace || !secret.usable) {
				continue
			}
			err = errors.Join(err, client.IgnoreNotFound(a.agent.opts.Local.Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove unused Secrets from the namespace %q of the managed cluster: %w", namespace, err))
		}
	}
	return errors.Join(errs...)
}

func (a *AddOns) placesOf(addOn string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.places[addOn]))
}

func (a *AddOns) remembered() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.places))
}

func (a *AddOns) watchSecrets(ctx context.Context, local client.WithWatch, namespace string, request func(addOn string)) {
	f := &follower{kind: corev1.SchemeGroupVersion.WithKind("SecretList"),
		options: []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{AddOnClusterLabel: a.agent.opts.Cluster}, client.HasLabels{addon.NameLabel}},
		changed: func(o *metav1.PartialObjectMetadata) {
			addOn := o.Labels[addon.NameLabel]
			a.remember(addOn, namespace)
			request(addOn)
		}}
	keep(ctx, func() (<-chan struct{}, error) { return nil, f.run(ctx, local) })
}

// watchHub watches with the credential of the cluster, and starts anew when that changes: then it requests all add-ons, since their
// kubeconfigs may have to change too.
func (a *AddOns) watchHub(ctx context.Context, request func(addOn string)) {
	f := &follower{options: []client.ListOption{client.InNamespace(a.agent.opts.Cluster)},
		changed: func(o *metav1.PartialObjectMetadata) { request(o.Name) }}
	var last *addOnHub
	keep(ctx, func() (<-chan struct{}, error) {
		_, replaced := a.agent.sessions.get()
		hub, err := a.connect()
		if hub == nil {
			return replaced.Done(), errors.Join(err, errNoHub)
		}
		if hub != last {
			last = hub
			for _, addOn := range a.remembered() {
				request(addOn)
			}
		}
		if f.kind, err = hub.GroupVersionKindFor(hub.api.NewList()); err != nil {
			return replaced.Done(), err
		}
		watching, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(replaced, cancel)()
		err = f.run(watching, hub)
		if watching.Err() == nil && !a.hasVanished(hub, err) {
			a.event(allAddOns, "AddOnsUnreachable", fmt.Errorf("cannot watch the add-ons on the hub at %q: %w", hub.session.hub.cluster.Server, err))
		}
		return replaced.Done(), err
	})
}

// errNoHub says that there is nothing to watch yet.
var errNoHub = errors.New("the cluster has no access to add-ons on the hub")

// keep calls do again and again until ctx ends. After a failure it waits, longer each time, or until the channel that do returned is closed.
func keep(ctx context.Context, do func() (wake <-chan struct{}, err error)) {
	for failures := 0; ctx.Err() == nil; failures++ {
		start := time.Now()
		wake, err := do()
		if err == nil || time.Since(start) > maxWait {
			failures = 0
		}
		timer := time.NewTimer(min(minWait<<min(failures, 5), maxWait))
		select {
		case <-timer.C:
		case <-wake:
			failures = 0
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// follower lists and watches metadata, and calls changed with each object that appears, changes or goes. It remembers across runs, so that
// nothing is missed in between.
type follower struct {
	kind    schema.GroupVersionKind // of the list
	options []client.ListOption
	changed func(*metav1.PartialObjectMetadata)
	known   map[client.ObjectKey]*metav1.PartialObjectMetadata
}

func metadataList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return list
}

// run returns when ctx ends, or with an error of the API server.
func (f *follower) run(ctx context.Context, c client.WithWatch) error {
	version, err := f.list(ctx, c)
	for err == nil && ctx.Err() == nil {
		version, err = f.watch(ctx, c, version)
	}
	return err
}

// pageSize keeps answers small: clients of the hub read bounded ones.
const pageSize = 100

func (f *follower) list(ctx context.Context, c client.WithWatch) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	seen := map[client.ObjectKey]*metav1.PartialObjectMetadata{}
	for next := ""; ; {
		page := metadataList(f.kind)
		if err := c.List(ctx, page, append(slices.Clone(f.options), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return "", err
		}
		for i := range page.Items {
			seen[client.ObjectKeyFromObject(&page.Items[i])] = &page.Items[i]
		}
		if version, next = page.ResourceVersion, page.Continue; next == "" {
			break
		}
	}
	before := f.known
	f.known = seen
	for key, o := range before {
		if seen[key] == nil {
			f.changed(o)
		}
	}
	for key, o := range seen {
		if old := before[key]; old == nil || old.ResourceVersion != o.ResourceVersion {
			f.changed(o)
		}
	}
	return version, nil
}

// watch follows from a version until the API server ends the watch, which is no failure, and returns the version that it reached.
func (f *follower) watch(ctx context.Context, c client.WithWatch, version string) (string, error) {
	const shortest = 5 * time.Minute
	lasts := shortest + rand.N(shortest)                      //nolint:gosec // spreads load
	ctx, cancel := context.WithTimeout(ctx, lasts+hubTimeout) // for a connection that died without a word
	defer cancel()
	w, err := c.Watch(ctx, metadataList(f.kind), append(slices.Clone(f.options), &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(lasts / time.Second))}})...)
	if err != nil {
		return "", err
	}
	defer w.Stop()
	start, before := time.Now(), version
	for event := range w.ResultChan() {
		o, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return "", apierrors.FromObject(event.Object)
		}
		version = o.ResourceVersion
		key := client.ObjectKeyFromObject(o)
		switch event.Type {
		case watch.Bookmark:
			continue
		case watch.Deleted:
			delete(f.known, key)
		default:
			f.known[key] = o
		}
		f.changed(o)
	}
	if version == before && time.Since(start) < minWait {
		return "", errors.New("the API server ended the watch at once")
	}
	return version, nil
}
