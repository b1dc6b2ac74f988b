package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/shell"
)

func (e *examination) checkPod(ctx context.Context) doctor.Finding {
	pod := e.readPod(ctx)
	list := "kubectl get pods -n " + shell.Word(e.Pod.Namespace, "NAMESPACE")
	switch {
	case e.Pod.Name == "":
		return doctor.Skipped("No pod was named.")
	case pod == nil:
		return doctor.Skipped(noCluster)
	case apierrors.IsNotFound(pod.err):
		return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Correct the name. "+e.isMeant(), list), "Pod %s does not exist.", e.Pod)
	case apierrors.IsForbidden(pod.err):
		return doctor.Unclear(doctor.Do("As an administrator: grant the right to read it:", e.grant(ctx, "wid-pod", "get", "pods", e.Pod)...), "You may not read pod %s.", e.Pod)
	case pod.err != nil:
		return doctor.Unclear(doctor.Do("Try again."), "Pod %s cannot be read: %s.", e.Pod, kubeerror.Message(pod.err, e.secrets...))
	}
	p := &pod.value
	if want := e.key(); accountOf(p) != want.Name || e.Pod.Namespace != want.Namespace {
		return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Set serviceAccountName in the pod's template."), "Pod %s runs as another ServiceAccount.", e.Pod).
			Compare("pod", e.Pod.Namespace+"/"+accountOf(p), "expected", want.String())
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil {
		return doctor.Unclear(doctor.Do("Name a pod that runs:", list), "Pod %s has ended, and its token with it.", e.Pod)
	}
	return e.examinePod(ctx, p)
}

// examinePod looks at what the webhook has given to the pod.
func (e *examination) examinePod(ctx context.Context, pod *corev1.Pod) doctor.Finding {
	const inside = "run wid doctor in the pod."
	containers := slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers)
	switch {
	case len(containers) == 0:
		return doctor.Skipped("Pod %s has no containers.", e.Pod)
	case e.Provider.GetName() == "gcp":
		return doctor.Skipped("The pod's specification does not show its metadata server; %s", inside)
	case e.cloud.tokenFile == "":
		return doctor.Passed("Pod %s runs as the ServiceAccount.", e.Pod)
	}
	for _, v := range e.environment(pod) {
		if slices.Contains(e.cloud.hiding, v.Name) && (v.Value != "" || v.ValueFrom != nil) {
			f := hides(v.Name, "the pod")
			if from := v.ValueFrom; from != nil && from.SecretKeyRef != nil && from.SecretKeyRef.Optional != nil && *from.SecretKeyRef.Optional {
				f.Result = doctor.Warn
			}
			return f
		}
	}
	switch {
	case e.usesAgent():
		return doctor.Skipped("The pod gets its credentials from an endpoint; %s", inside)
	case e.has(pod, e.cloud.tokenFile):
		return e.checkInjected(pod)
	case slices.ContainsFunc(containers, func(c corev1.Container) bool { return len(c.EnvFrom) > 0 }):
		return doctor.Unclear(doctor.Do("Run wid doctor in the pod."), "The variables that envFrom brings into pod %s are unknown.", e.Pod)
	}
	return e.checkUnchanged(ctx, pod)
}

func (e *examination) environment(pod *corev1.Pod) (all []corev1.EnvVar) {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		all = append(all, c.Env...)
	}
	return all
}

func (e *examination) has(pod *corev1.Pod, variable string) bool {
	return slices.ContainsFunc(e.environment(pod), func(v corev1.EnvVar) bool { return v.Name == variable })
}

// checkUnchanged lets the API server create a copy of the pod in a dry run, for which it asks the real webhook.
func (e *examination) checkUnchanged(ctx context.Context, pod *corev1.Pod) doctor.Finding {
	fail := func(remedy doctor.Remedy, says string) doctor.Finding {
		return doctor.Failed(reason.IdentityNotConfigured, remedy, "The webhook has not changed pod %s: %s is not set%s.", e.Pod, e.cloud.tokenFile, says)
	}
	switch another, err := kube.DryRun(ctx, e.Client, pod); {
	case err == nil && e.has(another, e.cloud.tokenFile):
		return fail(kube.Recreate(pod, "It changes a copy of the pod."), "")
	case err == nil:
		f := fail(doctor.Do("Correct the cause, then recreate the pod. This shows the webhooks:", "kubectl get mutatingwebhookconfigurations"), ", nor in a copy")
		f.Causes = e.cloud.uninjected
		return f
	}
	f := fail(kube.Recreate(pod, "Correct its template, or recreate an old pod."), "")
	f.Causes = append([]string{"the pod is older than the annotation or the webhook"}, e.cloud.uninjected...)
	return f
}

// checkInjected compares what the pod was given with the annotations.
func (e *examination) checkInjected(pod *corev1.Pod) doctor.Finding {
	annotations := e.serviceAccount().Annotations
	for _, v := range e.environment(pod) {
		for _, own := range [][2]string{{e.cloud.identity, annotations[e.cloud.required]}, {e.cloud.tenant, annotations[annotation.AzureTenantID]}} {
			if name, want := own[0], own[1]; v.Name == name && want != "" && v.Value != "" && !strings.EqualFold(v.Value, want) {
				return doctor.Failed(reason.IdentityNotConfigured, kube.Recreate(pod, fmt.Sprintf("If its template sets %s, remove it.", name)),
					"Pod %s has another %s than the annotation names.", e.Pod, name).Compare("pod", v.Value, "annotation", want)
			}
		}
	}
	return doctor.Passed("Pod %s has the identity.", e.Pod)
}
