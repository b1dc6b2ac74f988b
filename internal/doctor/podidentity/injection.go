package podidentity

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/webhook"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/shell"
)

const (
	injectionLabel = "iam.aws.k8s.io/injection"
	enabled        = "enabled"
	// prefix begins the variables of the sidecar.
	prefix      = "AWS_CONTAINER_"
	fullURI     = prefix + "CREDENTIALS_FULL_URI"
	relativeURI = prefix + "CREDENTIALS_RELATIVE_URI"
	secretOf    = prefix + "AUTHORIZATION_TOKEN"
	maxWarnings = 10
)

type warningsKey struct{}

// Warnings hands the warnings of an API server to the examination that caused them, and drops all others.
type Warnings struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (Warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	if all, ok := ctx.Value(warningsKey{}).(*[]string); ok && len(*all) < maxWarnings {
		*all = append(*all, text)
	}
}

// checkInjection lets the API server create the pod in a dry run, for which it asks the real webhook.
func (e *examination) checkInjection(ctx context.Context) doctor.Finding {
	if e.ServiceAccount == "" {
		return doctor.Skipped("The ServiceAccount of the pod is not known.")
	}
	pod, f := e.sample(), doctor.Finding{}
	switch err := e.Client.Create(context.WithValue(ctx, warningsKey{}, &e.warnings), pod, client.DryRunAll); {
	case err != nil:
		f = e.refused(ctx, err)
	case containerOf(pod.Spec.InitContainers, webhook.ProxyContainer) == nil:
		f = e.notInjected(ctx)
	case !asks(pod):
		f = doctor.Failed("NoContainerSelected", doctor.Do("Correct spec.containers of the IAMBinding, or the annotation "+webhook.AnnotationSkipContainers+", and create the pod again."),
			"The webhook gives the variables of the sidecar to no container of the pod.")
	case e.pod != nil && !asks(e.pod):
		f = doctor.Failed("PodNotInjected", e.recreate("The webhook injects a copy of it"), "The pod was created before the webhook could inject it.")
	default:
		e.tried = true
		return doctor.Passed("The webhook injects the pod.")
	}
	if f.Result == doctor.Fail && asks(e.pod) {
		return f.As(doctor.Warn) // this pod has its sidecar, the next one gets none
	}
	return f
}

// sample returns a copy of the pod as its author wrote it, or a pod that every Pod Security level admits.
func (e *examination) sample() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, GenerateName: "wid-doctor-"}}
	if e.pod == nil {
		pod.Spec = e.restricted()
		return pod
	}
	pod.Labels, pod.Annotations, pod.Spec = e.pod.Labels, e.pod.Annotations, *e.pod.Spec.DeepCopy()
	pod.Spec.NodeName, pod.Spec.EphemeralContainers = "", nil
	strip(&pod.Spec)
	return pod
}

func (e *examination) restricted() corev1.PodSpec {
	name := "app"
	if e.binding != nil && len(e.binding.Spec.Containers) > 0 {
		name = e.binding.Spec.Containers[0]
	}
	return corev1.PodSpec{ServiceAccountName: e.ServiceAccount,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: name, Image: "app", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}
}

// strip removes the webhook's parts. Only its variables hold the secret of the sidecar; the author's own stay.
func strip(spec *corev1.PodSpec) {
	sidecar := containerOf(spec.InitContainers, webhook.ProxyContainer)
	if sidecar == nil {
		return
	}
	secret := valueOf(sidecar, secretOf)
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			if strings.HasSuffix(valueOf(c, secretOf)+valueOf(c, relativeURI), secret) {
				c.Env = slices.DeleteFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == fullURI || v.Name == relativeURI || v.Name == secretOf })
			}
		}
	}
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == webhook.ProxyContainer || c.Name == webhook.RedirectContainer
	})
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == webhook.TokenVolume })
}

func containerOf(containers []corev1.Container, name string) *corev1.Container {
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}

func valueOf(c *corev1.Container, variable string) string {
	for _, v := range c.Env {
		if v.Name == variable {
			return v.Value
		}
	}
	return ""
}

// asks reports whether a container of the pod gets its credentials from the sidecar.
func asks(pod *corev1.Pod) bool {
	return pod != nil && containerOf(pod.Spec.InitContainers, webhook.ProxyContainer) != nil &&
		slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return valueOf(&c, fullURI)+valueOf(&c, relativeURI) != "" })
}

// refused quotes a refusal, which may come from a quota, a policy or any webhook. Only the access review tells a missing right apart.
func (e *examination) refused(ctx context.Context, err error) doctor.Finding {
	var status apierrors.APIStatus
	if apierrors.IsUnauthorized(err) || !errors.As(err, &status) {
		return kube.Unread("the answer to a dry run", err, e.command())
	}
	if apierrors.IsForbidden(err) && !e.mayCreate(ctx) {
		return doctor.Unclear(doctor.Do("As a user with the right, run this, and look for "+webhook.ProxyContainer+":", e.command()), "You may not create pods in namespace %s, not even in a dry run.", e.Namespace)
	}
	if status.Status().Code >= http.StatusInternalServerError {
		hook, _ := e.hook(ctx) // nil if it cannot be read
		if f, found := e.noEndpoint(ctx, hook); found {
			return f
		}
	}
	f := doctor.Unclear(doctor.Do("Correct what the answer names, then examine again."), "The API server refuses a pod in a dry run: %.300q.", kubeerror.Message(err))
	f.StatusCode = int(status.Status().Code)
	return f
}

func (e *examination) mayCreate(ctx context.Context) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: e.Namespace, Verb: "create", Resource: "pods"}}}
	return e.Client.Create(ctx, review) != nil || review.Status.Allowed
}

// command returns the dry run of kubectl, with the pod that every Pod Security level admits.
func (e *examination) command() string {
	overrides, err := json.Marshal(map[string]any{"spec": e.restricted()})
	if err != nil {
		return ""
	}
	return e.in("kubectl run wid-doctor --image app --dry-run=server -o yaml --overrides %s", shell.Word(string(overrides), "JSON"))
}

// notInjected says what is missing. What cannot be read stays among the possible causes.
func (e *examination) notInjected(ctx context.Context) doctor.Finding {
	if e.pod != nil && e.pod.Annotations[webhook.AnnotationInject] == "false" {
		return doctor.Failed("PodOptsOut", doctor.Do("Remove the annotation "+webhook.AnnotationInject+" from the pod's template, and create the pod again."), "The pod opts out of injection.")
	}
	hook, err := e.hook(ctx)
	if err == nil && hook == nil {
		return doctor.Failed("NoWebhook", install(), "No webhook injects pods in namespaces with the label %s.", injectionLabel)
	}
	var namespace corev1.Namespace
	err = kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: e.Namespace}, &namespace)
	if has := namespace.Labels[injectionLabel]; err == nil && has != enabled {
		return doctor.Failed("NamespaceNotLabelled", doctor.Do("Label the namespace, then create the pods again:", "kubectl label namespace "+shell.Word(e.Namespace, "NAMESPACE")+" --overwrite "+injectionLabel+"="+enabled),
			"The namespace %s has not opted in to the injection of pods.", e.Namespace).Compare("label "+injectionLabel, orNone(has), "expected", enabled)
	}
	if f, found := e.noEndpoint(ctx, hook); found {
		return f
	}
	f := doctor.Failed("WebhookDoesNotInject", doctor.Do("Read the webhook's configuration and log:", "kubectl get mutatingwebhookconfigurations -o yaml", "kubectl logs -n iam-system deploy/iam-credentials-webhook"),
		"The API server creates the pod without the sidecar.")
	f.Causes = []string{"the webhook or its endpoint is missing", "the namespace lacks the label " + injectionLabel, "the webhook selects other pods"}
	return f
}

// hook returns the webhook, recognized by the label that its namespaceSelector compares. Nil: there is none.
func (e *examination) hook(ctx context.Context) (*admissionv1.MutatingWebhook, error) {
	all, _, err := kube.List[admissionv1.MutatingWebhookConfiguration](ctx, e.Client, admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"))
	for i := range all {
		for j, hook := range all[i].Webhooks {
			if hook.NamespaceSelector != nil && hook.NamespaceSelector.MatchLabels[injectionLabel] == enabled {
				return &all[i].Webhooks[j], nil
			}
		}
	}
	return nil, err
}

func (e *examination) noEndpoint(ctx context.Context, hook *admissionv1.MutatingWebhook) (doctor.Finding, bool) {
	if hook == nil || hook.ClientConfig.Service == nil {
		return doctor.Finding{}, false
	}
	s := hook.ClientConfig.Service
	all, _, err := kube.List[discoveryv1.EndpointSlice](ctx, e.Client, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		client.InNamespace(s.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.Name})
	isReady := func(p discoveryv1.Endpoint) bool { return p.Conditions.Ready == nil || *p.Conditions.Ready }
	if err != nil || slices.ContainsFunc(all, func(s discoveryv1.EndpointSlice) bool { return slices.ContainsFunc(s.Endpoints, isReady) }) {
		return doctor.Finding{}, false
	}
	return doctor.Failed("WebhookHasNoEndpoint", doctor.Do("See why no replica of the webhook is ready:", "kubectl get service,pods -n "+shell.Word(s.Namespace, "NAMESPACE")),
		"The Service %s/%s of the webhook has no ready endpoint.", s.Namespace, s.Name), true
}

// checkWarnings passes on every warning, because none says which webhook it comes from.
func (e *examination) checkWarnings(context.Context) doctor.Finding {
	switch {
	case !e.tried:
		return doctor.Skipped("No dry run succeeded.")
	case len(e.warnings) == 0:
		return doctor.Passed("The API server does not warn about the pod.")
	}
	f := doctor.Failed("AdmissionWarns", doctor.Do("Correct the pod's template as the warning says, and create the pod again."),
		"The API server warns about the pod: %.300s.", strings.TrimSuffix(e.warnings[0], ".")).As(doctor.Warn)
	for _, text := range e.warnings[1:] {
		f = f.Detail("warning", text)
	}
	return f
}
