package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/workloadid/workloadid/internal/apiserver"
	"github.com/workloadid/workloadid/registration/ocm"
)

// SetupWithManager adds the agent to a manager of the managed cluster. The
// agent reconciles at the start and whenever one of its two Secrets changes. It
// watches only their metadata, each by its name, because its RBAC names them
// too. Where the hub allows it, it also watches its ManagedCluster. For
// [Options.ClusterStatus] it watches the nodes.
func (a *Agent) SetupWithManager(mgr ctrl.Manager) error {
	if err := apiserver.CheckVerified(mgr.GetConfig()); err != nil {
		return err
	}
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: a.opts.Namespace,
		Name: ocm.HubKubeconfigSecret}}
	c, err := controller.New("registration-agent", mgr, controller.Options{Reconciler: a, SkipNameValidation: new(true),
		// The priority queue of controller-runtime 0.24 can deadlock when a
		// controller stops.
		UsePriorityQueue: new(false),
		RateLimiter:      workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minWait, maxWait)})
	if err != nil {
		return err
	}
	enqueue := handler.TypedEnqueueRequestsFromMapFunc(func(context.Context,
		*metav1.PartialObjectMetadata) []reconcile.Request {
		return []reconcile.Request{request}
	})
	changes := make(chan event.TypedGenericEvent[*metav1.PartialObjectMetadata], 1)
	changes <- event.TypedGenericEvent[*metav1.PartialObjectMetadata]{} // the first reconcile
	if err := c.Watch(source.Channel(changes, enqueue)); err != nil {
		return err
	}
	for _, name := range []string{ocm.HubKubeconfigSecret, a.opts.BootstrapSecret} {
		secrets, err := cache.New(mgr.GetConfig(),
			cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
				DefaultNamespaces: map[string]cache.Config{a.opts.Namespace: {}}, DefaultTransform: stripMetadata,
				DefaultFieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)})
		if err != nil {
			return err
		}
		if err := mgr.Add(secrets); err != nil {
			return err
		}
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if err := c.Watch(source.Kind(secrets, secret, enqueue)); err != nil {
			return err
		}
	}
	if a.opts.ClusterStatus {
		if err := a.watchNodes(mgr); err != nil {
			return err
		}
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		a.watchCluster(ctx, func() {
			select {
			case changes <- event.TypedGenericEvent[*metav1.PartialObjectMetadata]{}:
			default: // a reconcile is requested already
			}
		})
		return nil
	}))
}
