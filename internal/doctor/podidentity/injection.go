package podidentity

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/shell"
)

const (
	injectionLabel = "iam.aws.k8s.io/injection"
	enabled        = "enabled"
	maxWarnings    = 10
	// dryRunTimeout leaves time for the API server to name a webhook that takes its whole timeout, 30 s at most.
	dryRunTimeout = 33 * time.Second
)

// variables are those of the sidecar.
var variables = []string{"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"}

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
	pod := e.sample()
	switch err := e.Client.Create(context.WithValue(ctx, warningsKey{}, &warnings), pod, client.DryRunAll); {
	case err != nil:
		f = e.refused(ctx, err)
	case !slices.ContainsFunc(pod.Spec.InitContainers, isSidecar):
		f = e.notInjected(ctx)
	case !asks(pod):
		f = e.fault("NoContainerSelected", "The webhook gives the variables of the sidecar to no container of the pod.")
	case e.pod != nil && !asks(e.pod):
		f = e.fault("PodNotInjected", "The pod was created before the webhook could inject it.")
	case len(warnings) > 0: // none says which webhook it comes from
		return e.fault("AdmissionWarns", "The API server warns about the pod: %.300s.", strings.TrimSuffix(warnings[0], ".")).As(doctor.Warn).
			Detail("all warnings", strings.Join(warnings, "; "))
	default:
		return doctor.Passed("The webhook injects the pod.")
	}
	if f.Result == doctor.Fail && asks(e.pod) {
		f.Result = doctor.Warn // this pod has its sidecar, the next one gets none
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

// strip removes the webhook's parts.
func strip(spec *corev1.PodSpec) {
	if !slices.ContainsFunc(spec.InitContainers, isSidecar) {
		return
	}
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool { return isSidecar(c) || c.Name == webhook.RedirectContainer })
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == webhook.TokenVolume })
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			containers[i].Env = slices.DeleteFunc(containers[i].Env, isVariable)
		}
	}
}

func isSidecar(c corev1.Container) bool { return c.Name == webhook.ProxyContainer }

func isVariable(v corev1.EnvVar) bool { return slices.Contains(variables, v.Name) }

// asks reports whether a container of the pod gets its credentials from the sidecar.
func asks(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.InitContainers, isSidecar) &&
		slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return slices.ContainsFunc(c.Env, isVariable) })
}

// refused quotes a refusal, which may come from RBAC, a quota, a policy or any webhook.
func (e *examination) refused(ctx context.Context, err error) doctor.Finding {
	var status apierrors.APIStatus
	if apierrors.IsUnauthorized(err) || !errors.As(err, &status) {
		return kube.Unread("the answer to a dry run", err, e.command())
	}
	if status.Status().Code >= http.StatusInternalServerError && e.lacksEndpoint(ctx) {
		return e.fault("WebhookHasNoEndpoint", "The Service of the webhook has no ready endpoint.")
	}
	f := doctor.Unclear(doctor.Do("Correct what the answer names. Or run this as a user who may create pods, and look for "+webhook.ProxyContainer+":", e.command()),
		"The API server refuses a pod in a dry run: %.300q.", kubeerror.Message(err))
	f.StatusCode = int(status.Status().Code)
	return f
}

// command returns the dry run of kubectl, with the pod that every Pod Security level admits.
func (e *examination) command() string {
	overrides, _ := json.Marshal(map[string]any{"spec": e.restricted()}) //nolint:errcheck // it has no value that JSON lacks
	return e.side.Command(e.in("kubectl run wid-doctor --image app --dry-run=server -o yaml --overrides " + shell.Word(string(overrides), "JSON")))
}

// notInjected says what is missing. What cannot be read stays among the possible causes.
func (e *examination) notInjected(ctx context.Context) doctor.Finding {
	var namespace corev1.Namespace
	hook, hookErr := e.hook(ctx)
	err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: e.Namespace}, &namespace)
	switch has := namespace.Labels[injectionLabel]; {
	case e.pod != nil && e.pod.Annotations[webhook.AnnotationInject] == "false":
		return e.fault("PodOptsOut", "The pod opts out of injection.")
	case hookErr == nil && hook == nil:
		return e.fault("NoWebhook", "No webhook injects pods in namespaces with the label %s.", injectionLabel)
	case err == nil && has != enabled:
		return e.fault("NamespaceNotLabelled", "The namespace %s has not opted in to the injection of pods.", e.Namespace).
			Compare("label "+injectionLabel, cmp.Or(has, "none"), "expected", enabled)
	case e.lacksEndpoint(ctx):
		return e.fault("WebhookHasNoEndpoint", "The Service of the webhook has no ready endpoint.")
	}
	f := e.fault("WebhookDoesNotInject", "The API server creates the pod without the sidecar.")
	f.Causes = []string{"the webhook or its endpoint is missing", "the namespace lacks the label " + injectionLabel, "the webhook selects other pods"}
	return f
}

// hook returns the webhook, recognized by the label that its namespaceSelector compares. Nil: there is none.
func (e *examination) hook(ctx context.Context) (found *admissionv1.MutatingWebhook, err error) {
	all, _, err := kube.List[admissionv1.MutatingWebhookConfiguration](ctx, e.Client, admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"))
	for _, config := range all {
		for _, hook := range config.Webhooks {
			if hook.NamespaceSelector != nil && hook.NamespaceSelector.MatchLabels[injectionLabel] == enabled {
				found = &hook
			}
		}
	}
	return found, err
}

func (e *examination) lacksEndpoint(ctx context.Context) bool {
	hook, err := e.hook(ctx)
	if err != nil || hook == nil || hook.ClientConfig.Service == nil {
		return false
	}
	s := hook.ClientConfig.Service
	all, _, err := kube.List[discoveryv1.EndpointSlice](ctx, e.Client, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		client.InNamespace(s.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.Name})
	for _, slice := range all {
		for _, p := range slice.Endpoints {
			if p.Conditions.Ready == nil || *p.Conditions.Ready {
				return false
			}
		}
	}
	return err == nil
}
