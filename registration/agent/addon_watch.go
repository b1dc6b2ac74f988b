package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// SetupWithManager adds the add-ons to a manager of the managed cluster. The
// number of workers bounds the concurrent registrations, so a driver that
// hangs for one add-on does not delay the others. It watches only metadata: of
// the cluster's add-ons on the hub, and of their Secrets in each namespace that
// they use.
func (a *AddOns) SetupWithManager(mgr ctrl.Manager, workers int) error {
	if workers < 1 {
		return fmt.Errorf("%d workers: add-ons need at least one", workers)
	}
	c, err := controller.New("registration-addons", mgr,
		controller.Options{Reconciler: a, MaxConcurrentReconciles: workers, SkipNameValidation: new(true),
			UsePriorityQueue: new(false), // as in Agent.SetupWithManager
			RateLimiter:      workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minWait, maxWait)})
	if err != nil {
		return err
	}
	started := make(chan workqueue.TypedRateLimitingInterface[reconcile.Request], 1)
	err = c.Watch(
		source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			started <- queue
			return nil
		}))
	if err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case queue := <-started:
			a.watch(ctx, mgr, func(addOn string) {
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: a.agent.opts.Cluster, Name: addOn}})
			})
		case <-ctx.Done():
		}
		return nil
	}))
}

// watch requests add-ons that change, on the hub or by their Secrets. It
// returns when ctx ends, after all its watches.
func (a *AddOns) watch(ctx context.Context, local manager.Manager, request func(addOn string)) {
	var group sync.WaitGroup
	follow := func(namespace string) { group.Go(func() { a.watchSecrets(ctx, local, namespace, request) }) }
	a.mu.Lock()
	a.follow = follow
	for namespace := range a.used {
		follow(namespace)
	}
	a.mu.Unlock()
	group.Go(func() { a.watchHealth(ctx, request) })
	a.watchHub(ctx, request)
	a.mu.Lock()
	a.follow = nil
	a.mu.Unlock()
	group.Wait()
}

// remember records a requested add-on. It also records the namespaces in which
// the add-on may have Secrets and the agent has the rights.
func (a *AddOns) remember(addOn string, namespaces ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.namespaces[addOn] == nil {
		a.namespaces[addOn] = map[string]bool{a.opts.Namespace: true}
	}
	for _, namespace := range namespaces {
		a.namespaces[addOn][namespace] = true
		if !a.used[namespace] && a.follow != nil {
			a.follow(namespace)
		}
		a.used[namespace] = true
	}
}

// forget removes all Secrets of a deleted add-on.
func (a *AddOns) forget(ctx context.Context, addOn string) error {
	if err := a.removeUnused(ctx, addOn, nil); err != nil {
		return err
	}
	a.mu.Lock()
	delete(a.namespaces, addOn)
	delete(a.health, addOn)
	a.mu.Unlock()
	a.agent.events.forget(addOn)
	for _, d := range []registration.Driver{a.opts.KubeClient, a.opts.CustomSigner} {
		if f, ok := d.(registration.Forgetter); ok {
			f.Forget(addOn)
		}
	}
	return nil
}

// removeUnused deletes the Secrets of an add-on that no item uses. After a
// change of namespace, the old Secret stays until the new one holds a
// credential.
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
			err = errors.Join(err,
				client.IgnoreNotFound(a.agent.opts.Local.Delete(ctx, o,
					client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove unused Secrets from the namespace %q of the managed cluster: %w",
				namespace, err))
		}
	}
	return errors.Join(errs...)
}

func (a *AddOns) placesOf(addOn string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.namespaces[addOn]))
}

func (a *AddOns) remembered() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.namespaces))
}

func (a *AddOns) watchSecrets(ctx context.Context, mgr manager.Manager, namespace string, request func(addOn string)) {
	options := cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces:    map[string]cache.Config{namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{ocm.AddOnClusterLabel: a.agent.opts.Cluster})}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := follow(ctx, mgr.GetConfig(), options, corev1.SchemeGroupVersion.WithKind("Secret"),
			func(o *metav1.PartialObjectMetadata) {
				if addOn := o.Labels[addon.NameLabel]; addOn != "" {
					a.remember(addOn, namespace)
					request(addOn)
				}
			})
		if err != nil {
			mgr.GetLogger().Error(err, "Cannot watch the Secrets of add-ons", "namespace", namespace)
		}
	}, maxWait)
}

// watchHub watches with the credential of the cluster, and restarts when it
// changes. It then requests all add-ons, because their kubeconfigs may have to
// change too.
func (a *AddOns) watchHub(ctx context.Context, request func(addOn string)) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		_, replaced := a.agent.sessions.get()
		if err := a.followHub(ctx, replaced, request); err == nil {
			return
		}
		retry := time.NewTimer(maxWait)
		defer retry.Stop()
		select {
		case <-retry.C:
		case <-replaced.Done():
		case <-ctx.Done():
		}
	}, minWait)
}

// errNoHub means that the agent cannot watch anything yet.
var errNoHub = errors.New("the cluster has no access to add-ons on the hub")

// followHub watches the add-ons on the hub until the credential is replaced, or
// the hub stops serving them.
func (a *AddOns) followHub(ctx, replaced context.Context, request func(addOn string)) error {
	hub, err := a.connect()
	if hub == nil {
		return errors.Join(err, errNoHub)
	}
	kind, err := hub.GroupVersionKindFor(hub.api.New())
	if err != nil {
		return err
	}
	for _, addOn := range a.remembered() {
		request(addOn)
	}
	options := cache.Options{Scheme: hub.Scheme(), Mapper: hub.RESTMapper(),
		DefaultNamespaces: map[string]cache.Config{a.agent.opts.Cluster: {}}}
	return hub.session.follow(ctx, replaced, options, kind, func(err error) bool {
		vanished := a.hasVanished(hub, err)
		if !vanished && !apierrors.IsResourceExpired(err) {
			a.event(allAddOns, "AddOnsUnreachable",
				fmt.Errorf("cannot watch the add-ons on the hub at %q: %w", hub.session.hub.Cluster.Server, err))
		}
		return vanished
	}, func(o *metav1.PartialObjectMetadata) { request(o.Name) })
}

// watchCluster requests a reconcile when the spec of the ManagedCluster
// changes. The agent itself changes only the status. The agent retries a
// forbidden watch with the next credential.
func (a *Agent) watchCluster(ctx context.Context, request func()) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		session, replaced := a.sessions.get()
		if session != nil {
			options := cache.Options{DefaultFieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, a.opts.Cluster)}
			var seen int64
			_ = session.follow(ctx, replaced, options, ocm.GroupVersion.WithKind("ManagedCluster"), apierrors.IsForbidden,
				func(o *metav1.PartialObjectMetadata) {
					if seen != o.Generation {
						seen = o.Generation
						request()
					}
				})
		}
		select {
		case <-replaced.Done():
		case <-ctx.Done():
		}
	}, minWait)
}

// follow watches objects on the hub until the access is replaced, or until
// isFinal is true for an error.
func (s *hubSession) follow(ctx, replaced context.Context, options cache.Options, kind schema.GroupVersionKind,
	isFinal func(error) bool, changed func(*metav1.PartialObjectMetadata)) (err error) {
	if options.HTTPClient, err = watchingHTTPClient(s.config); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(replaced, cancel)()
	options.DefaultWatchErrorHandler = func(_ context.Context, _ *toolscache.Reflector, err error) {
		if ctx.Err() == nil && isFinal(err) {
			cancel()
		}
	}
	return follow(ctx, s.config, options, kind, changed)
}

// stripMetadata keeps only the fields that the agent reads of objects that
// others write: names, the generation and the label of an add-on.
func stripMetadata(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.ObjectMeta = metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
			Generation: m.Generation,
			Labels:     map[string]string{addon.NameLabel: m.Labels[addon.NameLabel]}}
	}
	return o, nil
}

// follow calls changed with each object of a kind that appears, changes or
// disappears, until ctx ends.
func follow(ctx context.Context, config *rest.Config, options cache.Options, kind schema.GroupVersionKind,
	changed func(*metav1.PartialObjectMetadata)) error {
	options.DefaultTransform = stripMetadata
	objects, err := cache.New(config, options)
	if err != nil {
		return err
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	informer, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	seen := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if m, ok := o.(*metav1.PartialObjectMetadata); ok {
			changed(m)
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, o any) {
		seen(o)
	}, DeleteFunc: seen}); err != nil {
		return err
	}
	return objects.Start(ctx)
}

func metadataList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return list
}
