package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// serviceAccountIndex is the field of IAMBindings that informers index.
const serviceAccountIndex = "spec.serviceAccountRef.name"

func indexServiceAccount(o client.Object) []string {
	if b, ok := o.(*v1alpha1.IAMBinding); ok {
		return []string{b.Spec.ServiceAccountRef.Name}
	}
	return nil
}

// binding returns the binding that serves the pods of a ServiceAccount. If
// there is no such binding, it returns a refusal with the reason.
func (s *Server) binding(ctx context.Context, namespace, serviceAccount string) (*v1alpha1.IAMBinding, error) {
	bindings, err := s.bindings(ctx, namespace, serviceAccount)
	if err != nil {
		return nil, err
	}
	switch len(bindings) {
	case 0:
		return nil, &refusal{status: http.StatusForbidden, code: podidentity.ReasonNotBound,
			result:  podidentity.ReasonNotBound,
			message: fmt.Sprintf("no IAMBinding in namespace %q names the ServiceAccount %q", namespace, serviceAccount)}
	case 1:
		return &bindings[0], s.checkAllowed(ctx, &bindings[0])
	default:
		return nil, conflict(bindings)
	}
}

// bindings returns all bindings of a ServiceAccount, sorted by name. It leaves
// out a binding that is being deleted. The informer owns the bindings, so
// callers must not change them. It does not copy them, because a tenant may
// write many and each change reads all of them.
func (s *Server) bindings(ctx context.Context, namespace, serviceAccount string) ([]v1alpha1.IAMBinding, error) {
	list := &v1alpha1.IAMBindingList{}
	err := s.options.Client.List(ctx, list, client.InNamespace(namespace),
		client.MatchingFields{serviceAccountIndex: serviceAccount}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list IAMBindings of ServiceAccount %q: %w", namespace+"/"+serviceAccount, err)
	}
	bindings := slices.DeleteFunc(list.Items, func(b v1alpha1.IAMBinding) bool { return !b.DeletionTimestamp.IsZero() })
	slices.SortFunc(bindings, func(a, b v1alpha1.IAMBinding) int { return strings.Compare(a.Name, b.Name) })
	return bindings, nil
}

func (s *Server) checkAllowed(ctx context.Context, b *v1alpha1.IAMBinding) error {
	list, err := s.allowList(ctx)
	if err != nil || list.Allows(b.Namespace, b.Spec.AWS.RoleARN) {
		return err
	}
	return &refusal{status: http.StatusForbidden, code: podidentity.ReasonRoleNotAllowed,
		result: podidentity.ReasonRoleNotAllowed,
		message: fmt.Sprintf(
			"the IAMRoleAllowList %q does not allow namespace %q the role %q; ask the administrator of the cluster for a rule",
			v1alpha1.AllowListName, b.Namespace, b.Spec.AWS.RoleARN)}
}

// allowList returns nil without an error if the list does not exist.
func (s *Server) allowList(ctx context.Context) (*v1alpha1.IAMRoleAllowList, error) {
	list := &v1alpha1.IAMRoleAllowList{}
	err := s.options.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.AllowListName}, list)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read IAMRoleAllowList %q: %w", v1alpha1.AllowListName, err)
	}
	return list, nil
}

// conflict names two bindings, and none of three or more. So each write of a
// tenant changes the text of at most three bindings.
func conflict(bindings []v1alpha1.IAMBinding) *refusal {
	b, which := &bindings[0], "more than two IAMBindings name"
	if len(bindings) == 2 {
		which = fmt.Sprintf("IAMBindings %q and %q both name", b.Name, bindings[1].Name)
	}
	return &refusal{status: http.StatusForbidden, code: podidentity.ReasonConflict, result: podidentity.ReasonConflict,
		message: fmt.Sprintf(
			"%s the ServiceAccount %q, and none of them serves: delete all but one; kubectl get iambindings -n %s lists them",
			which, b.Spec.ServiceAccountRef.Name, b.Namespace)}
}
