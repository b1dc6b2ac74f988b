package podidentity

import (
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

const wrongRole = "If the role is wrong, correct spec.aws.roleArn:"

func install() doctor.Remedy {
	return doctor.Do("Install the IAM credentials provider with its webhook:", "kubectl apply -k config/iam-credentials-provider")
}

func readLog() doctor.Remedy {
	return doctor.Do("Read the server's log, which names the cause:", "kubectl get pods -n iam-system", "kubectl logs -n iam-system deploy/iam-credentials-provider")
}

func (e *examination) checkBinding(ctx context.Context) doctor.Finding {
	if e.ServiceAccount == "" {
		return doctor.Skipped("The ServiceAccount of the pod is not known.")
	}
	list := e.in("kubectl get iambindings --sort-by .metadata.creationTimestamp")
	all, _, err := kube.List[v1alpha1.IAMBinding](ctx, e.Client, v1alpha1.GroupVersion.WithKind("IAMBinding"), client.InNamespace(e.Namespace))
	switch {
	case kube.Absent(err):
		return doctor.Failed("ProviderNotInstalled", install(), "The cluster has no IAMBindings: the IAM credentials provider is not installed.")
	case err != nil:
		return kube.Unread("the IAMBindings", err, list)
	}
	var own []v1alpha1.IAMBinding
	var bound []string
	for _, b := range all {
		name := b.Spec.ServiceAccountRef.Name
		if b.DeletionTimestamp != nil { // the server ignores these
			continue
		}
		if bound = append(bound, name); name == e.ServiceAccount {
			own = append(own, b)
		}
	}
	switch len(own) {
	case 0:
		return doctor.Failed("NoBinding", doctor.Do("Correct serviceAccountRef of one of these, or serviceAccountName of the pod, or apply an IAMBinding:", list),
			"No IAMBinding in namespace %s names the ServiceAccount %s.", e.Namespace, e.ServiceAccount).Compare("bound", orNone(strings.Join(bound, ", ")), "ServiceAccount", e.ServiceAccount)
	case 1:
		e.binding = &own[0]
		return doctor.Passed("The IAMBinding %s gives %s the role %s.", e.binding.Name, e.ServiceAccount, e.binding.Spec.AWS.RoleARN)
	}
	// A new binding may be a mistake or an attack. The person decides which one goes.
	newest := slices.MaxFunc(own, func(a, b v1alpha1.IAMBinding) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return doctor.Failed("SeveralBindings", doctor.Do("Only one may stay. Compare them, oldest first, then delete the wrong one, whose role no pod gets any longer:", list, e.in("kubectl delete iambinding NAME")),
		"%d IAMBindings name the ServiceAccount %s, and none of them serves.", len(own), e.ServiceAccount).Detail("newest", newest.Name)
}

// edit returns a remedy that changes the binding.
func (e *examination) edit(text string) doctor.Remedy {
	return doctor.Do(text, e.in("kubectl edit iambinding %s", shell.Word(e.binding.Name, "NAME")))
}

// condition returns a condition of the binding as it is now. The zero value means that there is none.
func (e *examination) condition(kind string) metav1.Condition {
	if c := meta.FindStatusCondition(e.binding.Status.Conditions, kind); c != nil && c.ObservedGeneration == e.binding.Generation {
		return *c
	}
	return metav1.Condition{}
}

func (e *examination) checkServer(context.Context) doctor.Finding {
	if e.binding == nil {
		return doctor.Skipped("There is no IAMBinding to examine.")
	}
	c, role := e.condition(v1alpha1.ConditionAccepted), e.binding.Spec.AWS.RoleARN
	switch {
	case c.Status == "":
		return doctor.Failed("ServerSilent", readLog(), "The server has not checked the IAMBinding as it is now.")
	case c.Status == metav1.ConditionTrue:
		return doctor.Passed("The server accepts the IAMBinding.")
	case c.Reason == v1alpha1.ReasonRoleNotAllowed:
		widen := []string{"kubectl edit iamroleallowlist " + v1alpha1.AllowListName, fmt.Sprintf(" - {namespaces: [%s], roles: [%q]}", e.Namespace, role)}
		return e.detailed(c, doctor.Failed("RoleNotAllowed", e.edit(wrongRole).OrTrust("If "+e.Namespace+" is meant to have it", widen...),
			"The IAMRoleAllowList does not allow namespace %s the role of its IAMBinding.", e.Namespace))
	}
	return e.detailed(c, doctor.Failed("BindingRefused", e.edit("Correct the IAMBinding as the message says:"), "The server refuses the IAMBinding: %.300s.", c.Message))
}

func (e *examination) detailed(c metav1.Condition, f doctor.Finding) doctor.Finding {
	f.Code = c.Reason
	return f.Detail("role", e.binding.Spec.AWS.RoleARN).Detail("message", c.Message)
}

// checkRole reports the word of the server, which assumes each role itself.
func (e *examination) checkRole(context.Context) doctor.Finding {
	if e.binding == nil {
		return doctor.Skipped("There is no IAMBinding to examine.")
	}
	c, role := e.condition(v1alpha1.ConditionRoleAssumable), e.binding.Spec.AWS.RoleARN
	switch {
	case c.Status == metav1.ConditionTrue:
		return doctor.Passed("AWS lets the server assume the role %s.", role)
	case c.Status == metav1.ConditionFalse && c.Reason == "AccessDenied":
		trust := e.in("wid pod-identity trust-policy %s --cluster CLUSTER --server-role SERVER_ROLE_ARN", shell.Word(e.binding.Name, "NAME"))
		f := doctor.Failed("RoleRefusesServer", e.edit(wrongRole).OrTrust("If "+e.Namespace+" is meant to have it", trust), "AWS does not let the server assume the role for this ServiceAccount.")
		f.Causes = []string{"the role's trust policy does not admit the server, its session name or its tags", "the server's own role may not assume it", "the role does not exist"}
		return e.detailed(c, f)
	case c.Status == metav1.ConditionFalse:
		return e.detailed(c, doctor.Failed("SessionRefused", e.edit("Correct sessionPolicy, sessionTags, externalID or durationSeconds:"), "AWS refuses the session that the IAMBinding describes."))
	case c.Status == metav1.ConditionUnknown && c.Reason != v1alpha1.ReasonNotAccepted:
		return e.detailed(c, doctor.Failed("STSUnavailable", readLog(), "The server cannot ask AWS: STS gives no answer, or the server has no identity."))
	}
	name := shell.Word(role[strings.LastIndexByte(role, '/')+1:], "ROLE_NAME")
	return doctor.Unclear(doctor.Do("Read the role's trust policy:", "aws iam get-role --role-name "+name+" --query Role.AssumeRolePolicyDocument"), "The server has not tried the role yet.")
}
