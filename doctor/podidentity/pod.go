package podidentity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/webhook"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
)

const (
	injectionLabel = "iam.aws.k8s.io/injection"
	enabled        = "enabled"
	fullURI        = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	relativeURI    = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
)

// preferred returns the variables that AWS SDKs prefer to those of the sidecar.
func preferred() []string {
	return []string{"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}
}

func (e *examination) isInjected() bool { return e.pod != nil && e.sidecar() != nil }

func (e *examination) sidecar() *corev1.Container {
	return containerOf(e.pod.Spec.InitContainers, webhook.ProxyContainer)
}

func containerOf(containers []corev1.Container, name string) *corev1.Container {
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}

func (e *examination) checkNamespace(ctx context.Context) doctor.Finding {
	if e.isInjected() {
		return doctor.Passed("The pod was injected, so the namespace has opted in.")
	}
	var namespace corev1.Namespace
	if err := kube.Get(ctx, e.Reader, corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: e.Namespace}, &namespace); err != nil {
		return kube.Unread("the namespace", err, "kubectl get namespace "+e.namespace()+" --show-labels")
	}
	if has := namespace.Labels[injectionLabel]; has != enabled {
		return doctor.Failed("P10", doctor.Do("Label the namespace, then create the pods again:", "kubectl label namespace "+e.namespace()+" "+injectionLabel+"="+enabled),
			"The namespace %s has not opted in to the injection of pods.", e.Namespace).Compare("label "+injectionLabel, orNone(has), "expected", enabled)
	}
	return doctor.Passed("The namespace opts in to the injection of pods.")
}

func orNone(s string) string { return cmp.Or(s, "none") }

// checkWebhook recognizes the webhook by the label that its namespaceSelector compares.
func (e *examination) checkWebhook(ctx context.Context) doctor.Finding {
	if e.isInjected() {
		return doctor.Passed("The pod was injected, so there is a webhook.")
	}
	all, _, err := kube.List[admissionv1.MutatingWebhookConfiguration](ctx, e.Reader, admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"))
	if err != nil {
		return kube.Unread("the webhooks", err, "kubectl get mutatingwebhookconfigurations")
	}
	for i := range all {
		for _, hook := range all[i].Webhooks {
			if hook.NamespaceSelector != nil && hook.NamespaceSelector.MatchLabels[injectionLabel] == enabled {
				return doctor.Passed("The webhook %s injects pods.", all[i].Name)
			}
		}
	}
	return doctor.Failed("P11", doctor.Do("Install the IAM credentials provider with its webhook:", "kubectl apply -k config/iam-credentials-provider"),
		"No webhook injects pods in namespaces with the label %s.", injectionLabel)
}

func (e *examination) checkPod(context.Context) doctor.Finding {
	switch {
	case e.Pod == "":
		return doctor.Skipped("No pod was named.")
	case apierrors.IsNotFound(e.podErr):
		return doctor.Failed("P19", doctor.Do("Name one of these:", e.in("kubectl get pods")), "There is no pod %s in namespace %s.", e.Pod, e.Namespace)
	case e.podErr != nil:
		return kube.Unread("the pod", e.podErr, e.in("kubectl get pod %s -o yaml", shell.Word(e.Pod, "POD")))
	}
	return doctor.Passed("The pod runs as the ServiceAccount %s.", e.ServiceAccount)
}

func (e *examination) checkInjection(context.Context) doctor.Finding {
	switch {
	case e.pod == nil:
		return doctor.Skipped("There is no pod to examine.")
	case e.isInjected():
		return doctor.Passed("The pod has the sidecar.")
	case e.pod.Annotations[webhook.AnnotationInject] == "false":
		return doctor.Failed("P13", doctor.Do("Remove the annotation from the pod's template, and create the pod again."), "The pod opts out of injection.").
			Compare("annotation "+webhook.AnnotationInject, "false", "expected", "none")
	}
	again := e.recreate("Create the pod again, so that the webhook injects it")
	if e.binding != nil && e.pod.CreationTimestamp.Before(&e.binding.CreationTimestamp) {
		return doctor.Failed("P12", again, "The pod is older than its IAMBinding, so it has no sidecar.").
			Compare("pod", kube.Stamp(e.pod.CreationTimestamp.Time), "IAMBinding", kube.Stamp(e.binding.CreationTimestamp.Time))
	}
	f := doctor.Failed("P12", again, "The webhook has not injected the pod.")
	f.Causes = []string{"the pod is older than the webhook, or than the label of the namespace", "the binding named another ServiceAccount when the pod was created"}
	return f
}

// recreate deletes only a pod whose owner creates it again.
func (e *examination) recreate(text string) doctor.Remedy {
	if metav1.GetControllerOf(e.pod) == nil {
		return doctor.Do(text + ".")
	}
	return doctor.Do(text+":", e.in("kubectl delete pod %s", shell.Word(e.Pod, "POD")))
}

func (e *examination) checkVariables(context.Context) doctor.Finding {
	if !e.isInjected() {
		return doctor.Skipped("There is no injected pod.")
	}
	var without []string
	for i := range e.pod.Spec.Containers {
		c := &e.pod.Spec.Containers[i]
		if !hasVariable(c, fullURI) && !hasVariable(c, relativeURI) {
			without = append(without, c.Name)
			continue
		}
		if j := slices.IndexFunc(preferred(), func(name string) bool { return hasVariable(c, name) }); j >= 0 {
			return doctor.Failed("P15", doctor.Do("Remove the variable from the pod's template, and create the pod again."),
				"Container %s uses another identity: AWS SDKs prefer its variable %s.", c.Name, preferred()[j])
		}
	}
	if len(without) < len(e.pod.Spec.Containers) {
		return doctor.Passed("The containers ask the sidecar.").Detail("without", orNone(strings.Join(without, ", ")))
	}
	return doctor.Failed("P14", doctor.Do("Correct spec.containers of the IAMBinding, or the annotation "+webhook.AnnotationSkipContainers+", and create the pod again."),
		"No container of the pod has the variables of the sidecar.").Compare("containers", strings.Join(without, ", "), "variable", fullURI)
}

// hasVariable never looks at values: one of them is the pod's secret.
func hasVariable(c *corev1.Container, name string) bool {
	return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name })
}

// audience returns that of the pod's token.
func (e *examination) audience() string {
	for _, v := range e.pod.Spec.Volumes {
		if v.Name == webhook.TokenVolume && v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil {
					return s.ServiceAccountToken.Audience
				}
			}
		}
	}
	return ""
}

// checkToken has the API server review a token like the pod's.
func (e *examination) checkToken(ctx context.Context) doctor.Finding {
	if !e.isInjected() {
		return doctor.Skipped("There is no injected pod.")
	}
	audience := e.audience()
	if e.Audience != "" && audience != e.Audience {
		return doctor.Failed("P16", doctor.Do("Give webhook and server the same --audience, and create the pod again:", "kubectl edit configmap -n iam-system settings"),
			"The pod's token has another audience than the server's.").Compare("pod", orNone(audience), "server", e.Audience)
	}
	show := fmt.Sprintf("kubectl create token %s --audience %s --bound-object-kind Pod --bound-object-name %s -n %s",
		shell.Word(e.ServiceAccount, "SERVICE_ACCOUNT"), shell.Word(audience, "AUDIENCE"), shell.Word(e.Pod, "POD"), e.namespace())
	if e.Tokens == nil {
		return doctor.Skipped("No token was created, because the doctor was given no client for that.")
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: e.Pod, UID: e.pod.UID}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.ServiceAccount}}
	if err := e.Tokens.SubResource("token").Create(ctx, account, request); err != nil {
		return kube.Unread("a token of the pod", err, show)
	}
	e.token = request.Status.Token
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: e.token, Audiences: []string{audience}}}
	if err := e.Tokens.Create(ctx, review); err != nil {
		return kube.Unread("the review of a token", err, show)
	}
	if s := review.Status; !s.Authenticated || !slices.Contains(s.Audiences, audience) {
		return doctor.Failed("P18", e.recreate("Read the API server's log, and create the pod again"), "The API server refuses a token of the pod for the server.").
			Compare("review", fmt.Sprintf("authenticated %t, audiences %s", s.Authenticated, orNone(strings.Join(s.Audiences, ", "))), "expected", "authenticated true, audiences "+audience).Detail("error", fmt.Sprintf("%.300s", s.Error))
	}
	return doctor.Passed("The API server accepts a token of the pod for the server.")
}

// checkSidecar goes by the startup probe, which succeeds once the sidecar has credentials.
func (e *examination) checkSidecar(context.Context) doctor.Finding {
	if !e.isInjected() {
		return doctor.Skipped("There is no injected pod.")
	}
	pod := shell.Word(e.Pod, "POD")
	i := slices.IndexFunc(e.pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == webhook.ProxyContainer })
	if i < 0 {
		return doctor.Unclear(doctor.Do("See why the pod does not start:", e.in("kubectl describe pod %s", pod)), "The sidecar of the pod has not started yet.")
	}
	if s := e.pod.Status.InitContainerStatuses[i]; s.Started != nil && *s.Started {
		return doctor.Passed("The sidecar has credentials.")
	}
	return doctor.Failed("P17", doctor.Do("Read the sidecar's log, which has the reason:", e.in("kubectl logs %s -c %s", pod, webhook.ProxyContainer)),
		"The sidecar has no credentials yet, so the pod waits.")
}
