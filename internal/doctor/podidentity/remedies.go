package podidentity

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/auth/podidentity/webhook"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/shell"
)

// Remedies returns the remedy of each reason, for a pod that its owner creates again.
func Remedies(config Config) map[string]doctor.Remedy {
	e := newExamination(config)
	e.binding = &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Name: "reporting"}}
	e.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: config.Pod, OwnerReferences: []metav1.OwnerReference{{Controller: new(true)}}}}
	return e.remedies()
}

func (e *examination) remedies() map[string]doctor.Remedy {
	do, pod := e.side.Do, shell.Word(e.Pod, "POD")
	binding := cmp.Or(e.binding, &v1alpha1.IAMBinding{})
	name, role, meant := shell.Word(binding.Name, "NAME"), binding.Spec.AWS.RoleARN, "If "+e.Namespace+" is meant to have it"
	list, edit := e.in("kubectl get iambindings --sort-by .metadata.creationTimestamp"), e.in("kubectl edit iambinding "+name)
	wrongRole := do("If the role is wrong, correct spec.aws.roleArn:", edit)
	again := kube.Recreate(cmp.Or(e.pod, &corev1.Pod{}), "The webhook injects a copy of it.")
	return map[string]doctor.Remedy{
		"ProviderNotInstalled": doctor.Do("Install the IAM credentials provider with its webhook, as docs/podidentity.md says."),
		"NoBinding":            do("Correct serviceAccountRef of one of these, or serviceAccountName of the pod, or apply an IAMBinding:", list),
		"ServerSilent":         do("Read the server's log, which names the cause:", "kubectl get pods -n iam-system", "kubectl logs -n iam-system deploy/iam-credentials-provider"),
		// A new binding may be a mistake or an attack. The person decides which one goes.
		podidentity.ReasonConflict: e.side.Lose("Only one may stay. Compare them, oldest first, then delete the wrong one", "the role of pods that use its session", list, e.in("kubectl delete iambinding NAME")),
		podidentity.ReasonRoleNotAllowed: wrongRole.OrTrust(meant, e.side.Command("kubectl edit iamroleallowlist "+v1alpha1.AllowListName),
			fmt.Sprintf(" - {namespaces: [%s], roles: [%q]}", e.Namespace, role)),
		"AccessDenied":   wrongRole.OrTrust(meant, e.side.Command(e.in("wid pod-identity trust-policy "+name+" --cluster CLUSTER --server-role SERVER_ROLE_ARN"))),
		"BindingRefused": do("Correct the IAMBinding as the message says:", edit),
		"PodOptsOut":     doctor.Do("Remove the annotation " + webhook.AnnotationInject + " from the pod's template, and create the pod again."),
		"PodNotInjected": do(again.Text, again.Commands...),
		"NamespaceNotLabelled": do("Label the namespace, then create the pods again:",
			"kubectl label namespace "+shell.Word(e.Namespace, "NAMESPACE")+" --overwrite "+injectionLabel+"="+enabled),
		"WebhookNotReady":      do("Install the webhook, as docs/podidentity.md says, or see why no replica of it is ready:", "kubectl get service,pods -n iam-system"),
		"WebhookDoesNotInject": do("Read the webhook's configuration and log:", "kubectl get mutatingwebhookconfigurations -o yaml", "kubectl logs -n iam-system deploy/iam-credentials-webhook"),
		"AdmissionWarns":       doctor.Do("Correct the pod's template as the warning says, and create the pod again."),
		"AudienceDiffers":      do("Set AUDIENCE of webhook and server in your overlay, apply it, and create the pod again:", "kubectl apply -k OVERLAY"),
		"TokenRefused":         doctor.Do("Read the API server's log, which has the reason."),
		"SidecarWaits":         do("See why the pod does not start, and read the sidecar's log:", e.in("kubectl describe pod "+pod), e.in("kubectl logs "+pod+" -c "+podidentity.ProxyContainer)),
	}
}

func (e *examination) fault(class, format string, args ...any) doctor.Finding {
	return doctor.Failed(class, e.remedies()[class], format, args...)
}
