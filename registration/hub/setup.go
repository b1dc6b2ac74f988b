package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/workloadid/workloadid/internal/apiserver"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// The bounds of the back-off for a cluster that fails.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// SetupWithManager adds the hub and the controllers of its drivers to a
// manager, whose scheme needs [ocm.AddToScheme]. The hub reconciles up to
// workers clusters at a time, so a slow call for one cluster does not
// delay the others. Elect a leader if several programs run it, because two hubs
// with different drivers would overwrite each other's conditions of a cluster.
func (h *Hub) SetupWithManager(mgr ctrl.Manager, workers int) error {
	if err := apiserver.CheckVerified(mgr.GetConfig()); err != nil {
		return err
	}
	if workers < 1 {
		return fmt.Errorf("%d workers: a hub needs at least one", workers)
	}
	if h.options.Reader == nil {
		h.options.Reader = mgr.GetAPIReader()
	}
	toCluster := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if name := clusterOf(o); name != "" {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
		}
		return nil
	})
	lists := func(ctx context.Context, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		if err := h.list(ctx); err != nil {
			mgr.GetLogger().Error(err, "The hub reads each cluster by itself")
		}
		return nil
	}
	anyName := true // two hubs may run in one process
	err := ctrl.NewControllerManagedBy(mgr).Named("registration-hub").
		For(&ocm.ManagedCluster{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: matters})).
		Watches(&rbacv1.ClusterRole{}, toCluster, builder.OnlyMetadata). // records are read past the cache
		Watches(&rbacv1.ClusterRoleBinding{}, toCluster).
		Watches(&rbacv1.RoleBinding{}, toCluster).
		Watches(&corev1.Namespace{}, toCluster).
		WatchesRawSource(source.Func(lists)). // the workers start after it
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, SkipNameValidation: &anyName,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)}).
		Complete(h)
	if err != nil {
		return err
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		h.publishAuthTypes(ctx, mgr.GetLogger())
		return nil
	}))
	if err != nil {
		return err
	}
	for _, d := range h.options.Drivers {
		if s, ok := d.(registration.HubSetup); ok {
			if err := s.Setup(mgr); err != nil {
				return fmt.Errorf("set up the driver %q: %w", d.Name(), err)
			}
		}
	}
	return nil
}

// publishAuthTypes shows people and their tools the auth types that the hub
// grants. It retries until it has the right, and the namespace of the manifests
// exists.
func (h *Hub) publishAuthTypes(ctx context.Context, log logr.Logger) {
	var names []string
	for _, d := range h.options.Drivers {
		names = append(names, d.Name())
	}
	published := corev1ac.ConfigMap(ocm.HubAuthTypes, ocm.HubNamespace).
		WithData(map[string]string{ocm.KeyAuthTypes: strings.Join(names, ","), ocm.KeyDefaultAuthType: h.options.Default})
	_ = wait.PollUntilContextCancel(ctx, lastRetry, true, func(ctx context.Context) (bool, error) { // until ctx ends
		err := h.options.Client.Apply(ctx, published, client.FieldOwner("registration-hub"), client.ForceOwnership)
		if err != nil {
			log.Error(err, "The hub cannot publish its auth types", "namespace", ocm.HubNamespace, "configmap", ocm.HubAuthTypes)
		}
		return err == nil, nil
	})
}

// matters reports whether a change of a ManagedCluster needs a reconcile. The
// hub's own conditions need none. Otherwise a failure with a varying message
// would be retried at once, without end.
func matters(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*ocm.ManagedCluster)
	now, ok2 := e.ObjectNew.(*ocm.ManagedCluster)
	if !ok1 || !ok2 {
		return true
	}
	return before.Generation != now.Generation || before.UID != now.UID ||
		!before.DeletionTimestamp.Equal(now.DeletionTimestamp) ||
		!maps.Equal(before.Annotations, now.Annotations) ||
		!slices.Equal(before.Finalizers, now.Finalizers) ||
		stateOf(before).Joined != stateOf(now).Joined ||
		stateOf(before).Available != stateOf(now).Available
}

// clusterOf returns the cluster that a namespace, role or binding belongs to,
// or "". It uses the name, because an object can lose its label.
func clusterOf(o client.Object) string {
	name, ours := strings.CutPrefix(o.GetName(), registration.ClusterRoleName(""))
	if _, isNamespace := o.(*corev1.Namespace); !ours && !isNamespace {
		return ""
	}
	name = strings.TrimSuffix(name, relaySuffix)
	if o.GetNamespace() != "" {
		name = o.GetNamespace()
	}
	if registration.CheckClusterName(name) != nil {
		return ""
	}
	return name
}
