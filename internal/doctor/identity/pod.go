package identity

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

func (e *examination) checkPod(ctx context.Context) doctor.Finding {
	pod := e.readPod(ctx)
	switch {
	case e.Pod.Name == "":
		return doctor.Skipped("No pod was named.")
	case pod == nil:
		return doctor.Skipped(noCluster)
	case apierrors.IsNotFound(pod.err):
		return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Correct the name. "+e.isMeant(), "kubectl get pods -n "+shell.Word(e.Pod.Namespace, "NAMESPACE")),
			"Pod %s does not exist.", e.Pod)
	case apierrors.IsForbidden(pod.err):
		return doctor.Unclear(doctor.Do("Grant the right to read it:", e.grant(ctx, "wid-pod", "get", "pods", e.Pod)...), "You may not read pod %s.", e.Pod)
	case pod.err != nil:
		return doctor.Unclear(doctor.Do("Try again."), "Pod %s cannot be read: %s.", e.Pod, kubeerror.Message(pod.err, e.secrets...))
	}
	p := &pod.value
	if want := e.key(); accountOf(p) != want.Name || e.Pod.Namespace != want.Namespace {
		return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Set serviceAccountName in the pod's template."), "Pod %s runs as another ServiceAccount.", e.Pod).
			Compare("pod", e.Pod.Namespace+"/"+accountOf(p), "expected", want.String())
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil {
		return doctor.Unclear(doctor.Do("Name a pod that runs:", "kubectl get pods -n "+shell.Word(e.Pod.Namespace, "NAMESPACE")), "Pod %s has ended, and its token with it.", e.Pod)
	}
	return e.judgePod(p)
}

func (e *examination) judgePod(pod *corev1.Pod) doctor.Finding {
	containers, f := e.containersOf(pod)
	switch {
	case len(containers) == 0:
		return f
	case e.Provider.GetName() == "gcp":
		return e.judgeGooglePod(pod)
	case e.cloud.tokenFile == "":
		return doctor.Passed("Pod %s runs as the ServiceAccount.", e.Pod)
	}
	for i := range containers {
		if f, wrong := e.judgeHiding(&containers[i]); wrong {
			return f
		}
	}
	if e.usesAgent() {
		return e.judgeEndpoint(containers)
	}
	changed := slices.IndexFunc(containers, func(c corev1.Container) bool { return variableOf(&c, e.cloud.tokenFile).set })
	if changed < 0 {
		return e.judgeUnchanged(pod, containers)
	}
	return e.judgeContainer(pod, &containers[changed])
}

// judgeEndpoint passes only the addresses of an agent or a sidecar, because another endpoint can hand out any identity.
func (e *examination) judgeEndpoint(containers []corev1.Container) doctor.Finding {
	for i := range containers {
		v := variableOf(&containers[i], endpointVariable)
		u, err := url.Parse(v.value)
		if v.set && (err != nil || !slices.Contains([]string{"169.254.170.23", "fd00:ec2::23", "127.0.0.1", "localhost"}, u.Hostname())) {
			return doctor.Unclear(doctor.Do("Correct "+endpointVariable+" in the pod's template, or run wid doctor in the pod."),
				"The credentials endpoint of container %q is not that of an agent or a sidecar.", containers[i].Name).
				Compare(endpointVariable, cmp.Or(redact.URL(v.value), "unknown"), "expected", "169.254.170.23, [fd00:ec2::23], 127.0.0.1 or localhost")
		}
	}
	return doctor.Passed(byAgent)
}

// containersOf returns the named container, or all that stay: containers and sidecars.
func (e *examination) containersOf(pod *corev1.Pod) (containers []corev1.Container, missing doctor.Finding) {
	all := slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers)
	if e.Container != "" {
		if i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == e.Container }); i >= 0 {
			return all[i : i+1], missing
		}
		return nil, doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Correct the name of the container."), "Pod %s has no container %q.", e.Pod, e.Container)
	}
	for i := range all {
		if i < len(pod.Spec.Containers) || all[i].RestartPolicy != nil && *all[i].RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, all[i])
		}
	}
	return containers, doctor.Skipped("The pod has no containers.")
}

// judgeGooglePod looks at what hides GKE's metadata server. Nothing in a pod's specification shows it.
func (e *examination) judgeGooglePod(pod *corev1.Pod) doctor.Finding {
	const issuerOfGKE = "https://container.googleapis.com/"
	if c := e.token.claims; pod.Spec.HostNetwork {
		f := doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Set hostNetwork: false in the pod's template."), "Pod %s uses the network of its host, and so the node's metadata server.", e.Pod)
		if c != nil && !strings.HasPrefix(c.Issuer, issuerOfGKE) {
			f.Result = doctor.Warn
		}
		return f
	}
	return doctor.Skipped("The pod's specification does not show its metadata server; run wid doctor in the pod.")
}

func (e *examination) judgeHiding(c *corev1.Container) (doctor.Finding, bool) {
	where := fmt.Sprintf("container %q", c.Name)
	for _, name := range e.cloud.hiding {
		if v := variableOf(c, name); v.set {
			f := hides(name, where)
			if v.optional {
				f.Result = doctor.Warn
			}
			return f, true
		}
	}
	return doctor.Finding{}, false
}

// judgeUnchanged explains why the webhook has not changed a pod.
func (e *examination) judgeUnchanged(pod *corev1.Pod, containers []corev1.Container) doctor.Finding {
	excluded := strings.FieldsFunc(pod.Annotations[e.cloud.skipKey], func(r rune) bool { return r == ',' || r == ';' || r == ' ' })
	for i := range containers {
		c := &containers[i]
		switch {
		case len(c.EnvFrom) > 0:
			return doctor.Unclear(doctor.Do("Run wid doctor in the pod."), "The variables that envFrom brings into container %q are unknown.", c.Name)
		case slices.Contains(excluded, c.Name):
			return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Remove the container from the annotation in the pod's template."),
				"The pod's annotation %s excludes container %q.", e.cloud.skipKey, c.Name)
		case e.Provider.GetName() == "aws" && variableOf(c, e.cloud.identity).set:
			return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Remove "+e.cloud.identity+" from the pod's template and restart the pod."),
				"%s of container %q was set by hand, so the webhook leaves it alone.", e.cloud.identity, c.Name)
		}
	}
	if e.cloud.label != "" && pod.Labels[e.cloud.label] != "true" {
		return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Add the label to the pod's template: "+e.cloud.label+`: "true"`),
			"Pod %s lacks the label %s, so the webhook leaves it alone.", e.Pod, e.cloud.label)
	}
	f := doctor.Failed(reason.IdentityNotConfigured, restartOf(pod, "Restart the pod."), "The webhook has not changed pod %s: %s is not set.", e.Pod, e.cloud.tokenFile)
	f.Causes = []string{"the pod is older than the annotation or the webhook", "there is no webhook: kubectl get mutatingwebhookconfigurations"}
	return f
}

// restartOf adds the command for the owner of the pod. A ReplicaSet's pod is replaced with the same specification and passes the
// webhook again.
func restartOf(pod *corev1.Pod, text string) doctor.Remedy {
	namespace := shell.Word(pod.Namespace, "NAMESPACE")
	switch owner := metav1.GetControllerOf(pod); {
	case owner == nil:
		return doctor.Do(text + " No controller owns it, so create it again from its manifest.")
	case owner.Kind == "StatefulSet" || owner.Kind == "DaemonSet":
		return doctor.Do(text, fmt.Sprintf("kubectl rollout restart -n %s %s %s", namespace, strings.ToLower(owner.Kind), shell.Word(owner.Name, "OWNER_NAME")))
	}
	return doctor.Do(text+" Deleting it loses its local data; its owner creates another one:", fmt.Sprintf("kubectl delete pod -n %s %s", namespace, shell.Word(pod.Name, "POD_NAME")))
}

// judgeContainer compares what a container was given with the annotations.
func (e *examination) judgeContainer(pod *corev1.Pod, c *corev1.Container) doctor.Finding {
	annotations := e.serviceAccount().Annotations
	for _, v := range []struct{ name, what, want string }{
		{e.cloud.identity, "identity", annotations[e.cloud.required]}, {e.cloud.tenant, "tenant", annotations[annotation.AzureTenantID]},
	} {
		got := variableOf(c, v.name)
		switch {
		case v.name == "" || got.set && got.value == "" || v.want == "": // unknown, or anything goes
		case !got.set && len(c.EnvFrom) == 0:
			return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Remove "+e.cloud.tokenFile+" from the pod's template; the webhook sets both."),
				"Container %q has a token file without %s.", c.Name, v.name)
		case got.set && !strings.EqualFold(got.value, v.want):
			return doctor.Failed(reason.IdentityNotConfigured, restartOf(pod, "Restart the pod. If that changes nothing, remove "+v.name+" from its template."),
				"Container %q uses another %s than the annotation names.", c.Name, v.what).Compare("pod", got.value, "annotation", v.want)
		}
	}
	return doctor.Passed("Pod %s has the identity in container %q.", e.Pod, c.Name)
}

// variable is one of a container's environment. Its value is empty if the specification does not show it.
type variable struct {
	set, optional bool // optional: what it refers to may be missing
	value         string
}

func variableOf(c *corev1.Container, name string) (v variable) {
	for i := range c.Env {
		own := &c.Env[i]
		if own.Name != name {
			continue
		}
		v = variable{set: own.Value != "" || own.ValueFrom != nil, value: own.Value}
		if strings.Contains(v.value, "$") {
			v.value = ""
		}
		if from := own.ValueFrom; from != nil && from.SecretKeyRef != nil && from.SecretKeyRef.Optional != nil {
			v.optional = *from.SecretKeyRef.Optional
		}
	}
	return v
}

func hasVariable(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c corev1.Container) bool { return variableOf(&c, name).set })
}
