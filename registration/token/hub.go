package token

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/kubeevent"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/advice"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// Reasons of the condition TokenInfrastructureReady, in addition to the reasons
// in package ocm. All have the status False.
const (
	reasonInvalidName    = "InvalidName"
	reasonSeveralItems   = "SeveralKubeClientItems"
	reasonInvalidSubject = "InvalidSubject"
	reasonTaken          = "ObjectTaken"
)

// refusedRetry is the interval between checks of a refusal whose cause the hub
// does not watch, such as another owner's object.
const refusedRetry = 10 * time.Second

// HubOptions configures a Hub.
type HubOptions struct {
	// Client reads and writes the hub. Its reads may come from a cache, such as
	// one with hub.CacheOptions. Its scheme needs ocm.AddToScheme and
	// addon.AddToScheme. Required.
	Client client.Client
	// Reader reads add-ons, and the objects that the hub changes, past the
	// cache of Client. Use the manager's API reader. Required.
	Reader client.Reader
	// Events records refusals and changes. Nil records nothing.
	Events events.EventRecorder
	// RemoveOnly makes the hub create and repair nothing. It still revokes the
	// tokens of denied clusters, and of add-ons that left the driver or are
	// gone. Set it on a hub that no longer offers the driver, or no longer
	// serves the API of add-ons.
	RemoveOnly bool
}

// Hub is the hub's half. It creates a ServiceAccount for each add-on that
// declares the driver token, and lets the cluster request its tokens. It is a
// reconcile.Reconciler of ManagedClusterAddOns. It replaces Open Cluster
// Management's controller for add-on tokens: do not run both on one hub. It is
// safe for concurrent use.
type Hub struct {
	options HubOptions
	api     addon.API
	served  bool
}

// NewHub returns the hub's half. It asks the hub which version of the add-on
// API it serves. Only with RemoveOnly may the hub serve none.
func NewHub(options HubOptions) (*Hub, error) {
	if options.Client == nil || options.Reader == nil {
		return nil, errors.New("token: HubOptions.Client or Reader is missing: use the manager's client and API reader")
	}
	h := &Hub{options: options}
	var err error
	h.api, err = addon.Discover(options.Client.RESTMapper())
	h.served = err == nil
	if options.RemoveOnly && meta.IsNoMatchError(err) {
		return h, nil
	}
	return h, err
}

// SetupWithManager adds the hub's half to a manager. It reconciles up to
// workers add-ons at a time.
func (h *Hub) SetupWithManager(mgr ctrl.Manager, workers int) error {
	if workers < 1 {
		return fmt.Errorf("%d workers: a hub needs at least one", workers)
	}
	toAddOn := handler.EnqueueRequestsFromMapFunc(requestsFor)
	anyName := true // two hubs may run in one process
	b := ctrl.NewControllerManagedBy(mgr).Named("addon-token-infrastructure").
		Watches(&corev1.ServiceAccount{}, toAddOn).
		Watches(&rbacv1.Role{}, toAddOn).
		Watches(&rbacv1.RoleBinding{}, toAddOn).
		Watches(&ocm.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(h.addOnsOf),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: acceptanceChanged})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, SkipNameValidation: &anyName})
	if h.served {
		b = b.Watches(h.api.New(), toAddOn, builder.OnlyMetadata) // agents write the rest, which is read past the cache
	}
	return b.Complete(h)
}

func requestsFor(_ context.Context, o client.Object) []reconcile.Request {
	key, ok := addOnOf(o)
	if !ok {
		key, ok = leftOf(o)
	}
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// addOnsOf returns the add-ons of a cluster. It includes deleted add-ons that
// left objects behind.
func (h *Hub) addOnsOf(ctx context.Context, cluster client.Object) (all []reconcile.Request) {
	lists := []client.ObjectList{&corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}}
	if kind, err := h.options.Client.GroupVersionKindFor(h.api.NewList()); h.served && err == nil {
		addOns := &metav1.PartialObjectMetadataList{}
		addOns.SetGroupVersionKind(kind)
		lists = append(lists, addOns)
	}
	for _, list := range lists {
		if err := h.options.Client.List(ctx, list, client.InNamespace(cluster.GetName())); err != nil {
			return nil // the lists come from the cache of a running manager
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if o, ok := o.(client.Object); ok {
				all = append(all, requestsFor(ctx, o)...)
			}
			return nil
		})
	}
	return all
}

func acceptanceChanged(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*ocm.ManagedCluster)
	now, ok2 := e.ObjectNew.(*ocm.ManagedCluster)
	return !ok1 || !ok2 || accepts(before) != accepts(now)
}

// accepts reports whether the cluster may have tokens. A cluster that is being
// deleted is revoked like a denied one.
func accepts(c *ocm.ManagedCluster) bool {
	return registration.StateOf(c, nil, registration.Claim{}).Accepts
}

// Reconcile implements reconcile.Reconciler.
func (h *Hub) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	addOn := h.api.New()
	if h.served {
		if err := h.options.Reader.Get(ctx, req.NamespacedName, addOn); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
	}
	if addOn.GetUID() == "" || !addOn.GetDeletionTimestamp().IsZero() {
		addOn.SetNamespace(req.Namespace)
		addOn.SetName(req.Name)
		return reconcile.Result{}, h.sweep(ctx, addOn)
	}
	condition, err := h.settle(ctx, addOn, addon.StatusOf(addOn))
	if apierrors.IsForbidden(err) {
		err = refusal.New(ocm.ReasonForbidden, "the hub's controller lacks a right, apply its manifest again: %s",
			redact.Text(err.Error())).
			After(refusedRetry)
	}
	var result reconcile.Result
	if no := (*refusal.Error)(nil); errors.As(err, &no) {
		condition = &metav1.Condition{Status: metav1.ConditionFalse, Reason: no.Reason, Message: no.Message}
		result.RequeueAfter, err = no.Retry, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return result, client.IgnoreNotFound(h.report(ctx, addOn, condition))
}

// sweep removes the remains of a deleted add-on. It also removes the objects of
// an add-on in deletion if its cluster is denied, because a finalizer may delay
// the deletion for long.
func (h *Hub) sweep(ctx context.Context, addOn client.Object) error {
	accepted, err := h.isAccepted(ctx, addOn.GetNamespace())
	if err != nil {
		return err
	}
	if accepted {
		if gone, err := h.isGone(ctx, addOn); !gone {
			return err
		}
	}
	return h.remove(ctx, addOn)
}

// isGone reports whether an add-on does not exist. It reads past the cache,
// which may lag behind. If the hub does not serve the API of add-ons, an add-on
// may still exist.
func (h *Hub) isGone(ctx context.Context, addOn client.Object) (bool, error) {
	if !h.served {
		return false, nil
	}
	err := h.options.Reader.Get(ctx, client.ObjectKeyFromObject(addOn), h.api.New())
	if apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) { // no longer served
		return false, nil
	}
	return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
}

// settle creates or removes the objects of an add-on. It returns the condition
// to set, or nil for none.
func (h *Hub) settle(ctx context.Context, addOn client.Object, status addon.Status) (*metav1.Condition, error) {
	accepted, err := h.isAccepted(ctx, addOn.GetNamespace())
	if err != nil {
		return nil, err
	}
	item, err := tokenItem(status.Items)
	if !accepted {
		if removeErr := h.remove(ctx, addOn); removeErr != nil || (item == nil && err == nil) {
			return nil, removeErr
		}
		return nil, refusal.New(ocm.ReasonClusterNotAccepted,
			"the hub has not accepted the cluster %q, or the cluster is being deleted: run %s", addOn.GetNamespace(),
			advice.Accept(addOn.GetNamespace()))
	}
	if h.options.RemoveOnly && (item != nil || err != nil) {
		//nolint:nilerr // the refusal is the driver's
		return meta.FindStatusCondition(status.Conditions, addon.ConditionTokenInfrastructureReady),
			nil
	}
	if err != nil {
		return nil, err
	}
	if item == nil {
		if inUse(status.Conditions) {
			return meta.FindStatusCondition(status.Conditions, addon.ConditionTokenInfrastructureReady), nil
		}
		return nil, h.remove(ctx, addOn)
	}
	account, err := declaredAccount(addOn, item.Subject)
	if err != nil {
		return nil, err
	}
	return h.provide(ctx, addOn, account)
}

// isAccepted reports the administrator's decision. A hub that fails to apply it
// must not revoke the tokens of a running add-on.
func (h *Hub) isAccepted(ctx context.Context, cluster string) (bool, error) {
	c := &ocm.ManagedCluster{}
	if err := h.options.Client.Get(ctx, client.ObjectKey{Name: cluster}, c); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get ManagedCluster %q: %w", cluster, err)
	}
	return accepts(c), nil
}

// tokenItem returns the item that declares the driver token, or nil.
func tokenItem(items []ocm.Registration) (found *ocm.Registration, err error) {
	kubeClients := 0
	for i := range items {
		if items[i].Type != ocm.KubeClient {
			continue
		}
		if kubeClients++; items[i].Driver == registration.AuthTypeToken {
			found = &items[i]
		}
	}
	if found != nil && kubeClients > 1 {
		return nil, refusal.New(reasonSeveralItems, "the add-on has %d kubeClient items, which share one Secret: keep one",
			kubeClients)
	}
	return found, nil
}

// declaredAccount returns the name of the ServiceAccount that the agent
// declared. It checks the name, because the agent may write anything into the
// status.
func declaredAccount(addOn client.Object, subject ocm.Subject) (string, error) {
	cluster, name := addOn.GetNamespace(), addOn.GetName()
	if err := checkNames(cluster, name); err != nil {
		return "", refusal.New(reasonInvalidName, "%v", err)
	}
	if len(subject.Groups)+len(subject.OrganizationUnits) > 0 {
		return "", refusal.New(reasonInvalidSubject,
			"the subject of a token has a user and no groups, not %.300q: the agent has to declare the user alone",
			subject.Groups)
	}
	names := registration.AddOnServiceAccounts(cluster, name)
	for _, account := range names {
		if subject.User == userOf(client.ObjectKey{Namespace: cluster, Name: account}) {
			return account, nil
		}
	}
	return "", refusal.New(reasonInvalidSubject,
		"the subject %.300q is not a ServiceAccount of this add-on: the agent has to declare one of %q in namespace %q. "+
			"An add-on whose name begins with the cluster's name and a hyphen cannot have the name of Open Cluster Management",
		subject.User, names, cluster)
}

// inUse reports whether an agent may still need its tokens. An agent that fails
// to refresh its token holds the old one until it has the credential of another
// driver. Then it withdraws its condition.
func inUse(conditions []metav1.Condition) bool {
	for _, condition := range []string{ocm.ConditionAddOnTokenRefreshed, ocm.ConditionTokenRefreshed} {
		c := meta.FindStatusCondition(conditions, condition)
		if c != nil && (c.Status == metav1.ConditionTrue || strings.HasPrefix(c.Reason, agentReasons)) {
			return true
		}
	}
	return false
}

// pastCache is a client that reads objects past its cache.
type pastCache struct {
	client.Client
	reader client.Reader
}

func (c pastCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, o, opts...)
}

// report writes the condition unless it is already set.
func (h *Hub) report(ctx context.Context, addOn client.Object, condition *metav1.Condition) error {
	changed := false
	err := addon.PatchStatus(ctx, pastCache{h.options.Client, h.options.Reader}, addOn, func(s *addon.Status) bool {
		if condition == nil {
			changed = meta.RemoveStatusCondition(&s.Conditions, addon.ConditionTokenInfrastructureReady)
		} else {
			condition.Type = addon.ConditionTokenInfrastructureReady
			changed = ocm.SetCondition(&s.Conditions, *condition)
		}
		return changed
	})
	if err != nil || !changed {
		return err
	}
	switch {
	case condition == nil:
		kubeevent.Record(h.options.Events, addOn, corev1.EventTypeNormal, "TokenInfrastructureRemoved", "Remove",
			"the add-on's tokens are revoked")
	case condition.Status == metav1.ConditionTrue:
		kubeevent.Record(h.options.Events, addOn, corev1.EventTypeNormal, condition.Reason, "Provide", condition.Message)
	default:
		kubeevent.Record(h.options.Events, addOn, corev1.EventTypeWarning, condition.Reason, "Refuse", condition.Message)
	}
	return nil
}
