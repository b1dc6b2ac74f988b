package podidentity

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
)

// checkBinding takes the first of several bindings, because the condition of each says that they conflict.
func (e *examination) checkBinding(ctx context.Context) doctor.Finding {
	if e.ServiceAccount == "" {
		return doctor.Skipped("The ServiceAccount of the pod is not known.")
	}
	all, err := kube.List[v1alpha1.IAMBinding](ctx, e.Client, v1alpha1.GroupVersion.WithKind("IAMBinding"), client.InNamespace(e.Namespace))
	i := slices.IndexFunc(all, func(b v1alpha1.IAMBinding) bool { // the server ignores one that is being deleted
		return b.Spec.ServiceAccountRef.Name == e.ServiceAccount && b.DeletionTimestamp == nil
	})
	switch {
	case kube.Absent(err):
		return e.fault("ProviderNotInstalled", "The cluster has no IAMBindings: the IAM credentials provider is not installed.")
	case err != nil:
		return kube.Unread("the IAMBindings", err, e.side.Command(e.in("kubectl get iambindings")))
	case i < 0:
		return e.fault("NoBinding", "No IAMBinding in namespace %s names the ServiceAccount %s.", e.Namespace, e.ServiceAccount)
	}
	e.binding = &all[i]
	return doctor.Passed("The IAMBinding %s gives %s the role %s.", e.binding.Name, e.ServiceAccount, e.binding.Spec.AWS.RoleARN)
}

// checkRole quotes the server, which assumes each role itself. The reason of its condition is the class, if it has a remedy.
func (e *examination) checkRole(context.Context) doctor.Finding {
	if e.binding == nil {
		return doctor.Skipped("There is no IAMBinding to examine.")
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionRoleAssumable} {
		c := meta.FindStatusCondition(e.binding.Status.Conditions, kind)
		if c == nil || c.ObservedGeneration != e.binding.Generation {
			return e.fault("ServerSilent", "The server has not set the condition %s of the IAMBinding as it is now.", kind)
		}
		class := c.Reason
		switch _, known := e.remedies()[class]; {
		case c.Status == metav1.ConditionTrue:
			continue
		case c.Status == metav1.ConditionUnknown:
			class = "ServerSilent"
		case !known:
			class = "BindingRefused"
		}
		f := e.fault(class, "The condition %s of the IAMBinding is %s (%.60s): %.300s.", kind, c.Status, c.Reason, strings.TrimSuffix(c.Message, "."))
		f.Code = c.Reason
		return f
	}
	return doctor.Passed("AWS lets the server assume the role %s.", e.binding.Spec.AWS.RoleARN)
}
