package podidentity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
)

const wrongRole = "If the role is wrong, correct spec.aws.roleArn:"

func (e *examination) checkBinding(ctx context.Context) doctor.Finding {
	if e.ServiceAccount == "" {
		return doctor.Skipped("The ServiceAccount of the pod is not known.")
	}
	all, _, err := kube.List[v1alpha1.IAMBinding](ctx, e.Reader, v1alpha1.GroupVersion.WithKind("IAMBinding"), client.InNamespace(e.Namespace))
	switch {
	case kube.Absent(err):
		return doctor.Failed("P1", doctor.Do("Install the IAM credentials provider:", "kubectl apply -k config/iam-credentials-provider"),
			"The cluster has no IAMBindings: the IAM credentials provider is not installed.")
	case err != nil:
		return kube.Unread("the IAMBindings", err, e.in("kubectl get iambindings"))
	}
	all = slices.DeleteFunc(all, func(b v1alpha1.IAMBinding) bool { return b.DeletionTimestamp != nil }) // the server ignores these
	own := slices.DeleteFunc(slices.Clone(all), func(b v1alpha1.IAMBinding) bool { return b.Spec.ServiceAccountRef.Name != e.ServiceAccount })
	switch len(own) {
	case 0:
		return e.unbound(ctx, all)
	case 1:
		e.binding = &own[0]
	default:
		return e.conflict(own)
	}
	if f, missing := e.noServiceAccount(ctx); missing {
		return f
	}
	return doctor.Passed("The IAMBinding %s gives %s the role %s.", e.binding.Name, e.ServiceAccount, e.binding.Spec.AWS.RoleARN)
}

// conflict says which binding is the newest, because a new one may be a mistake or an attack. The person decides which one goes.
func (e *examination) conflict(own []v1alpha1.IAMBinding) doctor.Finding {
	slices.SortStableFunc(own, func(a, b v1alpha1.IAMBinding) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	older, newest := &own[len(own)-2], &own[len(own)-1]
	text := "Only one may stay. Compare them, then delete the wrong one:"
	if older.CreationTimestamp.Before(&newest.CreationTimestamp) {
		text = fmt.Sprintf("Only one may stay; %s was created last. Compare them, then delete the wrong one:", newest.Name)
	}
	show := e.in("kubectl get iambindings %s %s -o yaml", shell.Word(older.Name, "NAME"), shell.Word(newest.Name, "NAME"))
	return doctor.Failed("P3", doctor.Do(text, show, e.in("kubectl delete iambinding NAME")),
		"%d IAMBindings name the ServiceAccount %s, and none of them serves.", len(own), e.ServiceAccount).
		Compare("bindings", older.Name+", "+newest.Name, "expected", "one")
}

// unbound names the ServiceAccounts that are bound, since one of them may be meant.
func (e *examination) unbound(ctx context.Context, others []v1alpha1.IAMBinding) doctor.Finding {
	if f, missing := e.noServiceAccount(ctx); missing {
		return f
	}
	const maxShown = 5
	f := doctor.Failed("P2", doctor.Do("Apply an IAMBinding:", "apiVersion: iam.aws.k8s.io/v1alpha1", "kind: IAMBinding",
		fmt.Sprintf("metadata: {namespace: %q, name: %q}", e.Namespace, e.ServiceAccount), fmt.Sprintf("spec: {aws: {roleArn: ROLE_ARN}, serviceAccountRef: {name: %q}}", e.ServiceAccount)), "No IAMBinding in namespace %s names the ServiceAccount %s.", e.Namespace, e.ServiceAccount)
	if len(others) == 0 {
		return f
	}
	var names []string
	for _, b := range others[:min(maxShown, len(others))] {
		names = append(names, b.Spec.ServiceAccountRef.Name)
	}
	f.Remedy = doctor.Do("Correct serviceAccountRef of the IAMBinding, or serviceAccountName of the pod:", e.in("kubectl edit iambinding %s", shell.Word(others[0].Name, "NAME")))
	return f.Compare("bound", strings.Join(names, ", "), "ServiceAccount", e.ServiceAccount)
}

func (e *examination) noServiceAccount(ctx context.Context) (doctor.Finding, bool) {
	err := kube.Get(ctx, e.Reader, corev1.SchemeGroupVersion.WithKind("ServiceAccount"), client.ObjectKey{Namespace: e.Namespace, Name: e.ServiceAccount}, &corev1.ServiceAccount{})
	if !apierrors.IsNotFound(err) {
		return doctor.Finding{}, false // the others do not need the right to read it
	}
	return doctor.Failed("P4", doctor.Do("Correct the name, or create it:", e.in("kubectl create serviceaccount %s", shell.Word(e.ServiceAccount, "NAME"))),
		"There is no ServiceAccount %s in namespace %s.", e.ServiceAccount, e.Namespace), true
}

func (e *examination) checkAllowList(ctx context.Context) doctor.Finding {
	if e.binding == nil {
		return doctor.Skipped("There is no IAMBinding to examine.")
	}
	role, list := e.binding.Spec.AWS.RoleARN, &v1alpha1.IAMRoleAllowList{}
	err := kube.Get(ctx, e.Reader, v1alpha1.GroupVersion.WithKind("IAMRoleAllowList"), client.ObjectKey{Name: v1alpha1.AllowListName}, list)
	show := "kubectl get iamroleallowlist " + v1alpha1.AllowListName + " -o yaml"
	switch {
	case apierrors.IsNotFound(err) || kube.Absent(err):
		list = nil
	case err != nil && e.condition(v1alpha1.ConditionAccepted).Reason == v1alpha1.ReasonRoleNotAllowed:
		list = nil // by the word of the server
	case err != nil:
		return kube.Unread("the IAMRoleAllowList", err, show)
	}
	if list.Allows(e.Namespace, role) {
		return doctor.Passed("The IAMRoleAllowList allows namespace %s the role.", e.Namespace)
	}
	return doctor.Failed("P5", e.edit(wrongRole).OrTrust("If "+e.Namespace+" is meant to have it", "kubectl edit iamroleallowlist "+v1alpha1.AllowListName,
		fmt.Sprintf(" - {namespaces: [%s], roles: [%q]}", e.Namespace, role)),
		"The IAMRoleAllowList does not allow namespace %s the role of its IAMBinding.", e.Namespace).
		Compare("role", role, "allowed", allowed(list, e.Namespace))
}

// edit returns a remedy that changes the binding.
func (e *examination) edit(text string) doctor.Remedy {
	return doctor.Do(text, e.in("kubectl edit iambinding %s", shell.Word(e.binding.Name, "NAME")))
}

// allowed returns the patterns of roles for a namespace.
func allowed(list *v1alpha1.IAMRoleAllowList, namespace string) string {
	if list == nil {
		return "none"
	}
	var patterns []string
	for _, rule := range list.Spec.Rules {
		one := &v1alpha1.IAMRoleAllowList{Spec: v1alpha1.IAMRoleAllowListSpec{Rules: []v1alpha1.AllowRule{{Namespaces: rule.Namespaces, Roles: []string{"*"}}}}}
		if one.Allows(namespace, "") {
			patterns = append(patterns, rule.Roles...)
		}
	}
	return orNone(fmt.Sprintf("%.300s", strings.Join(patterns, ", ")))
}

// condition returns a condition of the binding. The zero value means that there is none.
func (e *examination) condition(kind string) metav1.Condition {
	if c := meta.FindStatusCondition(e.binding.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind}
}

func (e *examination) checkServer(context.Context) doctor.Finding {
	if e.binding == nil {
		return doctor.Skipped("There is no IAMBinding to examine.")
	}
	c := e.condition(v1alpha1.ConditionAccepted)
	if c.Status == metav1.ConditionTrue && c.ObservedGeneration == e.binding.Generation {
		return doctor.Passed("The server accepts the IAMBinding.")
	}
	f := doctor.Failed("P6", doctor.Do("See whether the server runs:", "kubectl get pods -n iam-system", logs("iam-credentials-provider")), "The server has not judged the IAMBinding as it is now.")
	return f.Compare("condition Accepted", orNone(strings.TrimSpace(fmt.Sprintf("%s %s", c.Status, c.Reason)))+fmt.Sprintf(", generation %d", c.ObservedGeneration),
		"expected", fmt.Sprintf("True %s, generation %d", v1alpha1.ReasonAccepted, e.binding.Generation)).Detail("message", fmt.Sprintf("%.1000s", c.Message))
}

// checkRole reports the word of the server, which assumes each role itself.
func (e *examination) checkRole(context.Context) doctor.Finding {
	if e.binding == nil {
		return doctor.Skipped("There is no IAMBinding to examine.")
	}
	c, role := e.condition(v1alpha1.ConditionRoleAssumable), e.binding.Spec.AWS.RoleARN
	name := shell.Word(role[strings.LastIndexByte(role, '/')+1:], "ROLE_NAME")
	var f doctor.Finding
	switch {
	case c.Status == metav1.ConditionTrue && c.ObservedGeneration == e.binding.Generation:
		return doctor.Passed("AWS lets the server assume the role %s.", role)
	case c.Status == metav1.ConditionFalse && c.Reason == "AccessDenied":
		trust := fmt.Sprintf("wid pod-identity trust-policy -n %s %s --cluster CLUSTER --server-role SERVER_ROLE_ARN", e.namespace(), shell.Word(e.binding.Name, "NAME"))
		f = doctor.Failed("P7", e.edit(wrongRole).OrTrust("If "+e.Namespace+" is meant to have it", trust),
			"AWS does not let the server assume the role for this ServiceAccount.")
		f.Causes = []string{"the role's trust policy does not admit the server, its session name or its tags", "the server's own role may not assume it", "the role does not exist"}
	case c.Status == metav1.ConditionFalse:
		f = doctor.Failed("P8", e.edit("Correct sessionPolicy, sessionTags, externalID or durationSeconds:"),
			"AWS refuses the session that the IAMBinding describes.")
	case c.Status == metav1.ConditionUnknown && c.Reason != v1alpha1.ReasonNotAccepted:
		f = doctor.Failed("P9", doctor.Do("Read the server's log, which names the cause:", logs("iam-credentials-provider")), "The server cannot ask AWS: STS gives no answer, or the server has no identity.")
	default:
		return doctor.Unclear(doctor.Do("Read the role's trust policy:", "aws iam get-role --role-name "+name+" --query Role.AssumeRolePolicyDocument"),
			"The server has not tried the role yet.")
	}
	f.Code = c.Reason
	return f.Detail("role", role).Detail("message", fmt.Sprintf("%.1000s", c.Message))
}
