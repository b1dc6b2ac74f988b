package podidentity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

const (
	injectionLabel = "iam.aws.k8s.io/injection"
	maxWarnings    = 10
	// dryRunTimeout leaves time for the API server to name a webhook that takes
	// its whole timeout, 30 s at most.
	dryRunTimeout = 33 * time.Second
)

type warningsKey struct{}

// Warnings hands the warnings of an API server to the examination that caused
// them, and drops all others.
type Warnings struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (Warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	if all, ok := ctx.Value(warningsKey{}).(*[]string); ok && len(*all) < maxWarnings {
		*all = append(*all, text)
	}
}

// tryWebhook lets the API server create the pod in a dry run, for which it asks
// the real webhook. A pod with its sidecar keeps it, whatever the next one
// gets.
func (e *examination) tryWebhook(ctx context.Context) (f doctor.Finding) {
	if e.ServiceAccount == "" {
		return unread("the ServiceAccount of the pod is not known")
	}
	var warnings []string
	pod := e.sample()
	err := e.Client.Create(context.WithValue(ctx, warningsKey{}, &warnings), pod, client.DryRunAll)
	warned := strings.TrimSuffix(strings.Join(warnings, "; "), ".") // none says which webhook it comes from
	switch {
	case apierrors.IsInternalError(err): // a webhook has failed
		f = doctor.Failed("WebhookFails",
			readLog("Correct what the answer says. The pods and the log of our webhook:", "iam-credentials-webhook"),
			"The API server cannot create pods: %.600s.", strings.TrimSuffix(kubeerror.Message(err), ".")).With(time.Now(),
			time.Time{})
	case err != nil: // RBAC, a quota or a policy, which says nothing of the webhook
		return kube.Unread("the pod of a dry run", err, e.in("kubectl auth can-i create pods"))
	case !isInjected(pod):
		f = e.notInjected(ctx, warned)
	case warned != "":
		f = doctor.Failed("AdmissionWarns",
			doctor.Do("Correct the pod's template as the warning says, and create the pod again."),
			"The API server warns: %.600s.", warned).As(doctor.Warn)
	default:
		f = doctor.Passed("the API server creates the pod with the sidecar")
	}
	if f.Result == doctor.Fail && e.pod != nil && isInjected(e.pod) {
		f.Result = doctor.Warn
	}
	return f
}

// notInjected quotes the label and the annotations that the webhook goes by.
func (e *examination) notInjected(ctx context.Context, warned string) doctor.Finding {
	var namespace corev1.Namespace
	said := "The label cannot be read"
	if kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: e.Namespace},
		&namespace) == nil {
		said = fmt.Sprintf("The namespace has the label %s=%.63q", injectionLabel, namespace.Labels[injectionLabel])
	}
	for _, key := range []string{webhook.AnnotationInject, webhook.AnnotationSkipContainers} {
		if e.pod != nil && e.pod.Annotations[key] != "" {
			said += fmt.Sprintf(", the pod the annotation %s=%.100q", key, e.pod.Annotations[key])
		}
	}
	if warned != "" {
		said += fmt.Sprintf(". The API server warns: %.600s", warned)
	}
	look := doctor.Do("The webhook injects new pods in namespaces with the label "+injectionLabel+
		"=enabled. See the labels, and what it selects:",
		"kubectl get namespace "+shell.Word(e.Namespace, "NAMESPACE")+" --show-labels",
		"kubectl get mutatingwebhookconfigurations -o yaml")
	return doctor.Failed("NotInjected", look, "The API server creates the pod without the sidecar or its variables. %s.",
		said)
}

// sample returns a copy of the pod as its author wrote it, or one that every
// Pod Security level admits.
func (e *examination) sample() *corev1.Pod {
	meta := metav1.ObjectMeta{Namespace: e.Namespace, GenerateName: "wid-doctor-"}
	if e.pod != nil {
		meta.Labels, meta.Annotations = e.pod.Labels, e.pod.Annotations
		pod := &corev1.Pod{ObjectMeta: meta, Spec: *e.pod.Spec.DeepCopy()}
		pod.Spec.NodeName, pod.Spec.EphemeralContainers = "", nil
		if isInjected(pod) {
			strip(&pod.Spec)
		}
		return pod
	}
	name := "app"
	if e.binding != nil && len(e.binding.Spec.Containers) > 0 {
		name = e.binding.Spec.Containers[0]
	}
	return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{ServiceAccountName: e.ServiceAccount,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: name, Image: "app", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}}
}

// strip removes the webhook's parts.
func strip(spec *corev1.PodSpec) {
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool {
		return isSidecar(c) || c.Name == podidentity.RedirectContainer
	})
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == podidentity.TokenVolume })
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			containers[i].Env = slices.DeleteFunc(containers[i].Env, isVariable)
		}
	}
}

func isSidecar(c corev1.Container) bool { return c.Name == podidentity.ProxyContainer }

func isVariable(v corev1.EnvVar) bool { return strings.HasPrefix(v.Name, "AWS_CONTAINER_") }

// isInjected reports whether a container of the pod gets its credentials from
// the sidecar.
func isInjected(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, isSidecar) &&
		slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Env, isVariable)
		})
}

// showSidecar goes by the startup probe, which succeeds once the sidecar has
// credentials, and by the Events of kubelet and server.
func (e *examination) showSidecar(ctx context.Context) doctor.Finding {
	switch {
	case e.Pod == "":
		return doctor.Skipped("no pod was named")
	case e.pod == nil:
		return unread("the pod could not be read")
	}
	pod := shell.Word(e.Pod, "POD")
	describe := e.in("kubectl describe pod " + pod)
	if !isInjected(e.pod) {
		return doctor.Failed("PodNotInjected",
			doctor.Do("The webhook injects new pods only, so create it again. What it is now:", describe),
			"The pod was created %s ago without the sidecar or its variables.", doctor.Age(e.pod.CreationTimestamp.Time))
	}
	var status corev1.ContainerStatus
	for _, s := range e.pod.Status.InitContainerStatuses {
		if s.Name == podidentity.ProxyContainer {
			status = s
		}
	}
	started, text := time.Time{}, "it is not running"
	if r := status.State.Running; r != nil {
		started, text = r.StartedAt.Time, "runs since "+kube.Stamp(r.StartedAt.Time)
	} else if w := status.State.Waiting; w != nil {
		text = fmt.Sprintf("waits, %.63s: %.300s", w.Reason, w.Message)
	}
	if t := status.LastTerminationState.Terminated; t != nil {
		text += fmt.Sprintf("; %d restarts, last ended with exit code %d, %.63s: %.300s", status.RestartCount, t.ExitCode,
			t.Reason, t.Message)
	}
	log := doctor.Do("See why the pod does not start, and read the sidecar's log:", describe,
		e.in("kubectl logs "+pod+" -c "+podidentity.ProxyContainer))
	f := doctor.Failed("SidecarWaits", log, "The sidecar has no credentials yet: %s.", text).With(started, time.Time{})
	works := status.Started != nil && *status.Started
	if works {
		last := slices.MaxFunc([]time.Time{started, e.assumable}, time.Time.Compare)
		f = doctor.Passed("%s; its startup probe saw credentials", text).With(time.Time{}, last)
	}
	about := func(v *corev1.Event) doctor.Remedy { return e.ofReason(v.Reason, log) }
	// other containers belong to the application
	events, err := kube.Warnings(ctx, e.Client, e.Namespace, kube.UID(e.pod.UID), about, func(v *corev1.Event) bool {
		return v.InvolvedObject.FieldPath == "" ||
			!works && strings.HasPrefix(v.InvolvedObject.FieldPath, "spec.initContainers{")
	})
	return kube.Sees(f.With(f.Since, f.Worked, events...), err)
}
