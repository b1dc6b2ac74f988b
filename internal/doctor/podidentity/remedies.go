package podidentity

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/auth/podidentity/webhook"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/shell"
)

// Remedies returns the remedy of each reason, for a pod that its owner creates again.
func Remedies(config Config) map[string]doctor.Remedy {
	e := newExamination(config)
	e.binding = &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Name: "reporting"}}
	return e.remedies()
}

func (e *examination) remedies() map[string]doctor.Remedy {
	do, namespace, pod := e.side.Do, shell.Word(e.Namespace, "NAMESPACE"), shell.Word(e.Pod, "POD")
	binding, role := "NAME", ""
	if e.binding != nil {
		binding, role = shell.Word(e.binding.Name, "NAME"), e.binding.Spec.AWS.RoleARN
	}
	list, edit := e.in("kubectl get iambindings --sort-by .metadata.creationTimestamp"), e.in("kubectl edit iambinding "+binding)
	wrongRole, meant := do("If the role is wrong, correct spec.aws.roleArn:", edit), "If "+e.Namespace+" is meant to have it"
	install := doctor.Do("Install the IAM credentials provider with its webhook, as docs/podidentity.md says.")
	readLog := do("Read the server's log, which names the cause:", "kubectl get pods -n iam-system", "kubectl logs -n iam-system deploy/iam-credentials-provider")
	return map[string]doctor.Remedy{
		"NoPod":                do("Name one of these:", e.in("kubectl get pods")),
		"ProviderNotInstalled": install,
		"NoBinding":            do("Correct serviceAccountRef of one of these, or serviceAccountName of the pod, or apply an IAMBinding:", list),
		// A new binding may be a mistake or an attack. The person decides which one goes.
		"SeveralBindings": e.side.Lose("Only one may stay. Compare them, oldest first, then delete the wrong one", "the role of pods that use its session", list, e.in("kubectl delete iambinding NAME")),
		"ServerSilent":    readLog,
		"RoleNotAllowed": wrongRole.OrTrust(meant, e.side.Command("kubectl edit iamroleallowlist "+v1alpha1.AllowListName),
			fmt.Sprintf(" - {namespaces: [%s], roles: [%q]}", e.Namespace, role)),
		"BindingRefused": do("Correct the IAMBinding as the message says:", edit),
		"RoleRefusesServer": wrongRole.OrTrust(meant, e.side.Command(e.in("wid pod-identity trust-policy "+binding+
			" --cluster CLUSTER --server-role SERVER_ROLE_ARN"))),
		"SessionRefused":      do("Correct sessionPolicy, sessionTags, externalID or durationSeconds:", edit),
		"STSUnavailable":      readLog,
		"NoContainerSelected": doctor.Do("Correct spec.containers of the IAMBinding, or the annotation " + webhook.AnnotationSkipContainers + ", and create the pod again."),
		"PodNotInjected":      e.recreate("The webhook injects a copy of it"),
		"PodOptsOut":          doctor.Do("Remove the annotation " + webhook.AnnotationInject + " from the pod's template, and create the pod again."),
		"NoWebhook":           install,
		"NamespaceNotLabelled": do("Label the namespace, then create the pods again:",
			"kubectl label namespace "+namespace+" --overwrite "+injectionLabel+"="+enabled),
		"WebhookHasNoEndpoint": do("See why no replica of the webhook is ready:", "kubectl get service,pods -n iam-system"),
		"WebhookDoesNotInject": do("Read the webhook's configuration and log:", "kubectl get mutatingwebhookconfigurations -o yaml", "kubectl logs -n iam-system deploy/iam-credentials-webhook"),
		"AdmissionWarns":       doctor.Do("Correct the pod's template as the warning says, and create the pod again."),
		"AudienceDiffers":      do("Set AUDIENCE of webhook and server in your overlay, apply it, and create the pod again:", "kubectl apply -k OVERLAY"),
		"TokenRefused":         doctor.Do("Read the API server's log, which has the reason."),
		"SidecarWaits":         do("Read the sidecar's log, which has the reason:", e.in("kubectl logs "+pod+" -c "+webhook.ProxyContainer)),
	}
}

func (e *examination) fault(class, format string, args ...any) doctor.Finding {
	return doctor.Failed(class, e.remedies()[class], format, args...)
}

// recreate deletes only a pod whose owner creates it again.
func (e *examination) recreate(text string) doctor.Remedy {
	if e.pod == nil || metav1.GetControllerOf(e.pod) == nil {
		return doctor.Do(text + ", and create the pod again.")
	}
	return e.side.Lose(text+". Delete the pod, and its owner creates it again", "nothing but this pod", e.in("kubectl delete pod "+shell.Word(e.Pod, "POD")))
}
