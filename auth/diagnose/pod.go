package diagnose

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/internal/shell"
)

// Check 15.
func (e *examination) checkPod(ctx context.Context) Finding {
	switch {
	case e.Pod.Name == "":
		return skip("no pod was named")
	case e.Client == nil:
		return unknown("there is no access to the cluster", noCluster)
	}
	pod, err := e.pod, e.podErr
	switch {
	case apierrors.IsNotFound(err):
		return fail(e.cloud.unset, "correct the name: kubectl get pods -n "+shell.Word(e.Pod.Namespace, "<namespace>"), "the pod does not exist").
			with(differs("pod", "not found", e.Pod.String()))
	case err != nil:
		return unknown("the pod cannot be read: "+kubeMessage(err),
			remedyOf(err, "grant get on pods in namespace "+shell.Word(e.Pod.Namespace, "<namespace>")))
	}
	if f, wrong := e.wrongAccount(pod); wrong {
		return f
	}
	restart := fmt.Sprintf("kubectl delete pod -n %s %s", shell.Word(e.Pod.Namespace, "<namespace>"), shell.Word(e.Pod.Name, "<pod>"))
	if e.Provider.GetName() == "gcp" {
		return e.judgeGKEPod(pod)
	}
	if e.cloud.tokenFile == "" {
		return pass("the pod runs as the ServiceAccount")
	}
	if f, hidden := e.hiddenIdentity(pod); hidden {
		return f
	}
	if e.podIdentity {
		return pass("%s", byPodIdentity)
	}
	if len(e.cloud.labels) > 0 && pod.Labels[e.cloud.labels[0]] != "true" {
		return fail(e.cloud.unset, `add the label to the pod's template: azure.workload.identity/use: "true"`,
			"the label %s is missing on the pod: the webhook leaves it alone", e.cloud.labels[0]).
			with(differs(e.cloud.labels[0], pod.Labels[e.cloud.labels[0]], "true"))
	}
	env := environmentOf(pod)
	if env[e.cloud.tokenFile] == "" {
		return e.judgeUninjected(ctx, pod, restart)
	}
	want := e.serviceAccount().Annotations[e.cloud.required]
	if got := env[e.cloud.identity]; want != "" && got != "" && got != want {
		return fail(e.cloud.unset, restart, "the pod uses another identity than the annotation says: restart it").
			with(differs(e.cloud.identity, got, want))
	}
	return pass("the identity is mounted: %s", shown(env[e.cloud.tokenFile]))
}

// hiddenIdentity finds what SDKs prefer to the identity of the ServiceAccount, in any container.
func (e *examination) hiddenIdentity(pod *corev1.Pod) (Finding, bool) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, v := range c.Env {
			if slices.Contains(e.cloud.hiding, v.Name) && (v.Value != "" || v.ValueFrom != nil) {
				return fail(e.cloud.unset, "remove "+v.Name+" from the container's environment",
					"%s in the container %s hides the identity of the ServiceAccount", v.Name, shown(c.Name)).
					with(differs(v.Name, "set", "not set")), true
			}
		}
	}
	return Finding{}, false
}

func (e *examination) wrongAccount(pod *corev1.Pod) (Finding, bool) {
	want, got := e.serviceAccount(), pod.Spec.ServiceAccountName
	if want.Name == "" || got == want.Name && pod.Namespace == want.Namespace {
		return Finding{}, false
	}
	return fail(e.cloud.unset, "set serviceAccountName in the pod's template", "the pod runs as another ServiceAccount").
		with(differs("serviceAccountName", pod.Namespace+"/"+got, want.Namespace+"/"+want.Name)), true
}

func (e *examination) judgeGKEPod(pod *corev1.Pod) Finding {
	if pod.Spec.HostNetwork {
		return fail("G15", "set hostNetwork: false", "the pod uses the network of its host, where the metadata server is that of the node").
			with(differs("hostNetwork", "true", "false"))
	}
	return skip("nothing in a pod's specification shows GKE's metadata server; run wid doctor in the pod")
}

// environmentOf merges the variables of all containers: the webhook sets them alike.
func environmentOf(pod *corev1.Pod) map[string]string {
	env := map[string]string{}
	for _, c := range append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
		for _, v := range c.Env {
			if v.Value != "" {
				env[v.Name] = v.Value
			}
		}
	}
	return env
}
