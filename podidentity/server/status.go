package server

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// The status writer assumes each accepted role itself, through the cache that
// serves pods. So RoleAssumable is known before the first pod asks, and a
// failing role backs off for both.
const (
	probeInterval = 15 * time.Minute // of a role that AWS let the server assume
	probeRetry    = time.Minute      // of any other role
	probeLifetime = 45 * time.Minute // renews after each interval, given sessions of an hour
	probeWorkers  = 8                // concurrent reconciles, so a slow role does not delay the others
)

// statusWriter reconciles the conditions of IAMBindings.
type statusWriter struct{ *Server }

// setup adds the controller, which runs on the leader only.
func (s *statusWriter) setup(mgr ctrl.Manager) error {
	anyName := true // two servers may run in one process
	siblings := handler.EnqueueRequestsFromMapFunc(s.siblings)
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).Named("iambinding-status").
		Watches(&v1alpha1.IAMBinding{}, siblings, changed).
		Watches(&v1alpha1.IAMRoleAllowList{}, handler.EnqueueRequestsFromMapFunc(s.everything), changed).
		WithOptions(controller.Options{MaxConcurrentReconciles: probeWorkers, SkipNameValidation: &anyName}).
		Complete(s)
}

// siblings returns the binding and the other bindings of its ServiceAccount. A
// change can start or end their conflict.
func (s *statusWriter) siblings(ctx context.Context, o client.Object) []reconcile.Request {
	b, ok := o.(*v1alpha1.IAMBinding)
	if !ok {
		return nil
	}
	bindings, err := s.bindings(ctx, b.Namespace, b.Spec.ServiceAccountRef.Name)
	if err != nil {
		s.options.Logger.Error(err, "find conflicting IAMBindings")
	}
	return requests(bindings)
}

func (s *statusWriter) everything(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.IAMBindingList{}
	if err := s.options.Client.List(ctx, list); err != nil {
		s.options.Logger.Error(err, "list IAMBindings")
	}
	return requests(list.Items)
}

func requests(bindings []v1alpha1.IAMBinding) []reconcile.Request {
	all := make([]reconcile.Request, len(bindings))
	for i := range bindings {
		all[i].NamespacedName = client.ObjectKeyFromObject(&bindings[i])
	}
	return all
}

// Reconcile implements reconcile.Reconciler.
func (s *statusWriter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	b := &v1alpha1.IAMBinding{}
	if err := s.options.Client.Get(ctx, req.NamespacedName, b); err != nil || !b.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	_, refused := s.binding(ctx, b.Namespace, b.Spec.ServiceAccountRef.Name)
	var known *refusal
	if refused != nil && !errors.As(refused, &known) {
		return reconcile.Result{}, refused
	}
	conditions, next := conditionsOf(known, b.Spec.AWS.Duration()), time.Duration(0)
	if known == nil {
		var assumable metav1.Condition
		assumable, next = s.probe(ctx, b)
		conditions = append(conditions, assumable)
	}
	return reconcile.Result{RequeueAfter: next}, s.write(ctx, b, conditions)
}

// conditionsOf returns the conditions that need no call of AWS. A nil refusal
// means accepted.
func conditionsOf(r *refusal, session time.Duration) []metav1.Condition {
	accepted := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue,
		Reason:  podidentity.ReasonAccepted,
		Message: "pods of the ServiceAccount are served" + outageWarning(session)}
	conflicting := metav1.Condition{Type: v1alpha1.ConditionConflict, Status: metav1.ConditionFalse,
		Reason:  podidentity.ReasonNoConflict,
		Message: "no other IAMBinding names the ServiceAccount"}
	if r == nil {
		return []metav1.Condition{accepted, conflicting}
	}
	accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, r.code, r.message
	if r.code == podidentity.ReasonConflict {
		conflicting.Status, conflicting.Reason, conflicting.Message = metav1.ConditionTrue, r.code, r.message
	}
	return []metav1.Condition{accepted, conflicting,
		{Type: v1alpha1.ConditionRoleAssumable, Status: metav1.ConditionUnknown,
			Reason: podidentity.ReasonNotAccepted, Message: "the role is not tried while the binding is not accepted"}}
}

// outageWarning states the longest outage of STS that applications do not
// notice, if it is less than 30 minutes. A proxy has at least 55 % of a session
// left when it renews. It needs three minutes for its margin and its next
// attempt.
func outageWarning(session time.Duration) string {
	if session >= time.Hour {
		return ""
	}
	return fmt.Sprintf(
		"; with durationSeconds %d applications notice an outage of STS after %d minutes, with 3600 after 30",
		int(session.Seconds()), int((session*55/100 - 3*time.Minute).Minutes()))
}

// probe assumes the role as pods do, but with empty tags for the pod.
func (s *statusWriter) probe(ctx context.Context, b *v1alpha1.IAMBinding) (c metav1.Condition, next time.Duration) {
	c.Type = v1alpha1.ConditionRoleAssumable
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	token, err := s.credentials(ctx, b, pod{namespace: b.Namespace, serviceAccount: b.Spec.ServiceAccountRef.Name},
		probeLifetime)
	switch {
	case err == nil:
		c.Status, c.Reason = metav1.ConditionTrue, podidentity.ReasonAssumed
		c.Message = fmt.Sprintf("the role was assumed, with the session name %q", token.SessionName())
		return c, probeInterval
	case isRefused(err):
		c.Status, c.Reason = metav1.ConditionFalse, conditionReason(codeOf(err))
	case isOwnIdentity(err):
		s.options.Logger.Error(err, "no AWS identity of the server", "namespace", b.Namespace, "binding", b.Name)
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, codeUnavailable, noOwnIdentity
		return c, probeRetry
	default:
		c.Status, c.Reason = metav1.ConditionUnknown, codeUnavailable
	}
	c.Message = err.Error()
	return c, probeRetry
}

// validReason matches the reasons that the API server accepts.
var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

func conditionReason(code string) string {
	if validReason.MatchString(code) {
		return code
	}
	return codeDenied
}

// write patches the status if a condition differs. It records an Event if a
// person has to edit something.
func (s *statusWriter) write(ctx context.Context, b *v1alpha1.IAMBinding, conditions []metav1.Condition) error {
	generation, changed, before := b.Generation, false, []metav1.Condition(nil)
	err := optimistic.PatchStatus(ctx, s.options.Client, b, func() bool {
		changed, before = false, slices.Clone(b.Status.Conditions)
		for _, c := range conditions {
			c.ObservedGeneration = generation
			changed = meta.SetStatusCondition(&b.Status.Conditions, c) || changed
		}
		return changed
	})
	if err != nil || !changed {
		return client.IgnoreNotFound(err)
	}
	for _, c := range conditions {
		had := meta.FindStatusCondition(before, c.Type)
		if c.Type != v1alpha1.ConditionConflict && c.Status == metav1.ConditionFalse &&
			(had == nil || had.Status != c.Status || had.Reason != c.Reason) {
			s.event(bindingReference(b), c.Reason, c.Message)
		}
	}
	return nil
}
