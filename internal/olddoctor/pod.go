package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/internal/shell"
)

// Check 15.
func (e *examination) checkPod(ctx context.Context) Finding {
	pod, err := e.pod, e.podErr
	switch {
	case e.Pod.Name == "":
		return skip("no pod was named")
	case e.Client == nil:
		return e.noAccess()
	case apierrors.IsNotFound(err):
		return fail(e.cloud.unset, "correct the name:\nkubectl get pods -n "+shell.Word(e.Pod.Namespace, "NAMESPACE"),
			"the pod does not exist").
			with(differs("pod", "not found", e.Pod.String()))
	case apierrors.IsUnauthorized(err):
		return e.lockedOut()
	case errors.Is(err, errHuge):
		return unknown("the pod was not looked at: "+errHuge.Error(), "see what answers in the API server's place, or who has written the pod")
	case err != nil:
		f := unknown("the pod cannot be read: "+kubeMessage(err), remedyOf(err, ""))
		if apierrors.IsForbidden(err) {
			f.Remedy = "allow it:\n" + grant("wid-pod", "get", "pods", e.Pod, e.caller(ctx))
		}
		if e.nameless() {
			f.Message, f.Remedy = f.Message+"; so who it runs as is not known", f.Remedy+"\n"+nameIt
		}
		return f
	}
	if f, wrong := e.wrongAccount(pod); wrong {
		return f
	}
	f := e.judgeSeveral(e.judgePod(ctx, pod))
	if f.Result != Pass && f.Result != Skip {
		return f
	}
	switch phase := pod.Status.Phase; {
	case phase == corev1.PodSucceeded || phase == corev1.PodFailed:
		return unknown(f.Message+"; but the pod has ended, and its tokens with it", "name a pod that runs").
			with(differs("phase", string(phase), string(corev1.PodRunning)))
	case !pod.DeletionTimestamp.IsZero():
		return unknown(f.Message+"; but the pod is being deleted, and its tokens end with it", "name a pod that runs").
			with(differs("deletionTimestamp", stamp(pod.DeletionTimestamp.Time), "none"))
	}
	return f
}

// judgePod is about what the webhook gives the pod.
func (e *examination) judgePod(ctx context.Context, pod *corev1.Pod) Finding {
	restart := e.restartOf(ctx, pod)
	switch {
	case e.Provider.GetName() == "gcp":
		return e.judgeGooglePod(pod)
	case e.cloud.tokenFile == "":
		return pass("the pod runs as the ServiceAccount")
	}
	audiences, _ := e.wantedAudiences(ctx) // check 9 tells what is wrong with them
	if e.podIdentity || hasAny(pod, e.cloud.tokenFile) || e.Container != "" && !hasContainer(pod, e.Container) {
		return e.judgeContainers(ctx, pod, audiences, restart)
	}
	for _, c := range lasting(pod) {
		f := e.judgeContainer(pod, &c, audiences, restart)
		if f.Result != Skip {
			return f
		}
		if f.Message != "" {
			return e.leftOutOf(ctx, pod, &c, restart, fail(e.cloud.unset, "",
				"the webhook has not changed the pod: %s%s", shown(c.Name), f.Message))
		}
	}
	if len(e.cloud.labels) > 0 && pod.Labels[e.cloud.labels[0]] != "true" {
		return fail(e.cloud.unset, `add the label to the pod's template: azure.workload.identity/use: "true"`,
			"the label %s is missing on the pod: the webhook leaves it alone", e.cloud.labels[0]).
			with(differs(e.cloud.labels[0], pod.Labels[e.cloud.labels[0]], "true"))
	}
	return e.judgeUninjected(ctx, pod, restart)
}

func (e *examination) wrongAccount(pod *corev1.Pod) (Finding, bool) {
	want, got := e.serviceAccount(), firstOf(pod.Spec.ServiceAccountName, "default")
	if want.Name == "" || got == want.Name && pod.Namespace == want.Namespace {
		return Finding{}, false
	}
	return fail(e.cloud.unset, "set serviceAccountName in the pod's template", "the pod runs as another ServiceAccount").
		with(differs("serviceAccountName", pod.Namespace+"/"+got, want.Namespace+"/"+want.Name)), true
}

// issuerOfGKE begins the issuers of GKE's clusters.
const issuerOfGKE = "https://container.googleapis.com/"

// judgeGooglePod knows what keeps a pod from GKE's metadata server. On other clusters nothing in a pod has to be there.
func (e *examination) judgeGooglePod(pod *corev1.Pod) Finding {
	for _, c := range lasting(pod) {
		if v := variableOf(pod, &c, googleFile); v.set {
			return unknown(fmt.Sprintf("Google's SDKs use what the file in %s of the container %q says, which can only be seen in the pod",
				googleFile, shown(c.Name)), "run wid doctor in the pod").with(same(googleFile, v.value))
		}
	}
	if pod.Spec.HostNetwork {
		f := fail("G15", "set hostNetwork: false",
			"the pod uses the network of its host, where the metadata server is that of the node").
			with(differs("hostNetwork", "true", "false"))
		if c := e.token.claims; c == nil || !strings.HasPrefix(c.Issuer, issuerOfGKE) {
			f.Result, f.Message = Warn, f.Message+", if this is GKE"
		}
		return f
	}
	return skip("nothing in a pod's specification shows GKE's metadata server; run wid doctor in the pod")
}
