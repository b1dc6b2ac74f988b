package podidentity

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/webhook"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/shell"
)

const (
	injectionLabel = "iam.aws.k8s.io/injection"
	enabled        = "enabled"
	maxWarnings    = 10
	// dryRunTimeout leaves time for the API server to name a webhook that takes its whole timeout, 30 s at most.
	dryRunTimeout = 33 * time.Second
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
func (e *examination) checkInjection(ctx context.Context) (f doctor.Finding) {
	if e.ServiceAccount == "" {
		return doctor.Skipped("The ServiceAccount of the pod is not known.")
	}
	var warnings []string
	switch pod, err := kube.DryRun(context.WithValue(ctx, warningsKey{}, &warnings), e.Client, e.sample()); {
	case err != nil:
		f = e.refused(ctx, err)
	case !asks(pod):
		f = e.notInjected(ctx)
	case e.pod != nil && !asks(e.pod):
		f = e.fault("PodNotInjected", "The pod was created before the webhook could inject it.")
	case len(warnings) > 0: // none says which webhook it comes from
		return e.fault("AdmissionWarns", "The API server warns about the pod: %.600s.", strings.TrimSuffix(strings.Join(warnings, "; "), ".")).As(doctor.Warn)
	default:
		return doctor.Passed("The webhook injects the pod.")
	}
	if f.Result == doctor.Fail && asks(e.pod) {
		f.Result = doctor.Warn // this pod has its sidecar, the next one gets none
	}
	return f
}

// sample returns the pod as its author wrote it, or a pod that every Pod Security level admits.
func (e *examination) sample() *corev1.Pod {
	if e.pod != nil {
		pod := e.pod.DeepCopy()
		strip(&pod.Spec)
		return pod
	}
	name := "app"
	if e.binding != nil && len(e.binding.Spec.Containers) > 0 {
		name = e.binding.Spec.Containers[0]
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace}, Spec: corev1.PodSpec{ServiceAccountName: e.ServiceAccount,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: name, Image: "app", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}}
}

// strip removes the webhook's parts.
func strip(spec *corev1.PodSpec) {
	if !slices.ContainsFunc(spec.InitContainers, isSidecar) {
		return
	}
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool { return isSidecar(c) || c.Name == podidentity.RedirectContainer })
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == podidentity.TokenVolume })
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			containers[i].Env = slices.DeleteFunc(containers[i].Env, isVariable)
		}
	}
}

func isSidecar(c corev1.Container) bool { return c.Name == podidentity.ProxyContainer }

func isVariable(v corev1.EnvVar) bool { return strings.HasPrefix(v.Name, "AWS_CONTAINER_") }

// asks reports whether a container of the pod gets its credentials from the sidecar.
func asks(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.InitContainers, isSidecar) &&
		slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return slices.ContainsFunc(c.Env, isVariable) })
}

// refused quotes a refusal, which may come from RBAC, a quota, a policy or any webhook.
func (e *examination) refused(ctx context.Context, err error) doctor.Finding {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError && e.lacksWebhook(ctx) {
		return e.fault("WebhookNotReady", "No webhook injects pods, or its Service has no ready endpoint.")
	}
	again := "wid doctor pod-identity --service-account " + shell.Word(e.Namespace+"/"+e.ServiceAccount, "NAMESPACE/NAME")
	if e.Pod != "" {
		again = "wid doctor pod-identity --pod " + shell.Word(e.Namespace+"/"+e.Pod, "NAMESPACE/NAME")
	}
	return kube.Unread("the pod of a dry run", err, e.side.Command(again))
}

// notInjected says what is missing. What cannot be read stays among the possible causes.
func (e *examination) notInjected(ctx context.Context) doctor.Finding {
	var namespace corev1.Namespace
	err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: e.Namespace}, &namespace)
	switch {
	case e.pod != nil && e.pod.Annotations[webhook.AnnotationInject] == "false":
		return e.fault("PodOptsOut", "The pod opts out of injection.")
	case err == nil && namespace.Labels[injectionLabel] != enabled:
		return e.fault("NamespaceNotLabelled", "The namespace %s lacks the label %s=%s.", e.Namespace, injectionLabel, enabled)
	case e.lacksWebhook(ctx):
		return e.fault("WebhookNotReady", "No webhook injects pods, or its Service has no ready endpoint.")
	}
	f := e.fault("WebhookDoesNotInject", "The API server creates the pod without the sidecar, or without its variables.")
	f.Causes = []string{"spec.containers of the IAMBinding, or the annotation " + webhook.AnnotationSkipContainers + ", leaves out every container",
		"the webhook is missing, or selects other pods or namespaces"}
	return f
}

// lacksWebhook recognizes the webhook by the label that its namespaceSelector compares. It returns false if it may not read.
func (e *examination) lacksWebhook(ctx context.Context) bool {
	all, err := kube.List[admissionv1.MutatingWebhookConfiguration](ctx, e.Client, admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"))
	for _, config := range all {
		for _, hook := range config.Webhooks {
			if hook.NamespaceSelector != nil && hook.NamespaceSelector.MatchLabels[injectionLabel] == enabled {
				return hook.ClientConfig.Service != nil && e.lacksEndpoint(ctx, hook.ClientConfig.Service)
			}
		}
	}
	return err == nil
}

func (e *examination) lacksEndpoint(ctx context.Context, s *admissionv1.ServiceReference) bool {
	all, err := kube.List[discoveryv1.EndpointSlice](ctx, e.Client, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		client.InNamespace(s.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.Name})
	return err == nil && !slices.ContainsFunc(all, func(slice discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(p discoveryv1.Endpoint) bool { return p.Conditions.Ready == nil || *p.Conditions.Ready })
	})
}
