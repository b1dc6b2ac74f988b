package podidentity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
)

func (e *examination) checkBinding(ctx context.Context) doctor.Finding {
	if e.ServiceAccount == "" {
		return doctor.Skipped("The ServiceAccount of the pod is not known.")
	}
	list := e.in("kubectl get iambindings --sort-by .metadata.creationTimestamp")
	all, _, err := kube.List[v1alpha1.IAMBinding](ctx, e.Client, v1alpha1.GroupVersion.WithKind("IAMBinding"), client.InNamespace(e.Namespace))
	switch {
	case kube.Absent(err):
		return e.fault("ProviderNotInstalled", "The cluster has no IAMBindings: the IAM credentials provider is not installed.")
	case err != nil:
		return kube.Unread("the IAMBindings", err, e.side.Command(list))
	}
	all = slices.DeleteFunc(all, func(b v1alpha1.IAMBinding) bool { return b.DeletionTimestamp != nil }) // the server ignores these
	var bound []string
	for _, b := range all {
		bound = append(bound, b.Spec.ServiceAccountRef.Name)
	}
	own := slices.DeleteFunc(all, func(b v1alpha1.IAMBinding) bool { return b.Spec.ServiceAccountRef.Name != e.ServiceAccount })
	switch len(own) {
	case 0:
		return e.fault("NoBinding", "No IAMBinding in namespace %s names the ServiceAccount %s.", e.Namespace, e.ServiceAccount).
			Compare("bound", cmp.Or(strings.Join(bound, ", "), "none"), "ServiceAccount", e.ServiceAccount)
	case 1:
		e.binding = &own[0]
		return doctor.Passed("The IAMBinding %s gives %s the role %s.", e.binding.Name, e.ServiceAccount, e.binding.Spec.AWS.RoleARN)
	}
	return e.fault("SeveralBindings", "%d IAMBindings name the ServiceAccount %s, and none of them serves.", len(own), e.ServiceAccount)
}

// condition returns a condition of the binding as it is now. The zero value means that there is none.
func (e *examination) condition(kind string) metav1.Condition {
	if c := meta.FindStatusCondition(e.binding.Status.Conditions, kind); c != nil && c.ObservedGeneration == e.binding.Generation {
		return *c
	}
	return metav1.Condition{}
}

// checkRole reports the word of the server, which assumes each role itself.
func (e *examination) checkRole(context.Context) doctor.Finding {
	if e.binding == nil {
		return doctor.Skipped("There is no IAMBinding to examine.")
	}
	accepted, assumable, role := e.condition(v1alpha1.ConditionAccepted), e.condition(v1alpha1.ConditionRoleAssumable), e.binding.Spec.AWS.RoleARN
	for _, v := range []struct {
		condition      metav1.Condition
		status         metav1.ConditionStatus
		reason         string // empty: any
		class, message string
	}{
		{accepted, "", "", "ServerSilent", "The server has not checked the IAMBinding as it is now."},
		{accepted, metav1.ConditionFalse, v1alpha1.ReasonRoleNotAllowed, "RoleNotAllowed", "The IAMRoleAllowList does not allow namespace " + e.Namespace + " the role of its IAMBinding."},
		{accepted, metav1.ConditionFalse, "", "BindingRefused", fmt.Sprintf("The server refuses the IAMBinding: %.300s.", accepted.Message)},
		{assumable, metav1.ConditionFalse, "AccessDenied", "RoleRefusesServer", "AWS does not let the server assume the role for this ServiceAccount."},
		{assumable, metav1.ConditionFalse, "", "SessionRefused", "AWS refuses the session that the IAMBinding describes."},
		{assumable, metav1.ConditionUnknown, "Unavailable", "STSUnavailable", "The server cannot ask AWS: STS gives no answer, or the server has no identity."},
	} {
		if v.condition.Status == v.status && (v.reason == "" || v.condition.Reason == v.reason) {
			f := e.fault(v.class, "%s", v.message).Detail("role", role).Detail("message", v.condition.Message)
			f.Code = v.condition.Reason
			return f
		}
	}
	if assumable.Status == metav1.ConditionTrue {
		return doctor.Passed("AWS lets the server assume the role %s.", role)
	}
	name := shell.Word(role[strings.LastIndexByte(role, '/')+1:], "ROLE_NAME")
	return doctor.Unclear(doctor.Do("Read the role's trust policy:", "aws iam get-role --role-name "+name+" --query Role.AssumeRolePolicyDocument"), "The server has not tried the role yet.")
}
