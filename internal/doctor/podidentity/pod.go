package podidentity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/webhook"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
)

// checkPod also learns the ServiceAccount.
func (e *examination) checkPod(ctx context.Context) doctor.Finding {
	if e.Pod == "" {
		return doctor.Skipped("No pod was named.")
	}
	pod := &corev1.Pod{}
	err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Pod"), client.ObjectKey{Namespace: e.Namespace, Name: e.Pod}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return doctor.Failed("NoPod", doctor.Do("Name one of these:", e.in("kubectl get pods")), "There is no pod %s in namespace %s.", e.Pod, e.Namespace)
	case err != nil:
		return kube.Unread("the pod", err, e.in("kubectl get pod %s -o yaml", shell.Word(e.Pod, "POD")))
	}
	e.pod, e.ServiceAccount = pod, cmp.Or(e.ServiceAccount, pod.Spec.ServiceAccountName, "default")
	return doctor.Passed("The pod runs as the ServiceAccount %s.", e.ServiceAccount)
}

// audience returns that of the pod's token.
func (e *examination) audience() string {
	for _, v := range e.pod.Spec.Volumes {
		if v.Name == webhook.TokenVolume && v.Projected != nil && len(v.Projected.Sources) > 0 && v.Projected.Sources[0].ServiceAccountToken != nil {
			return v.Projected.Sources[0].ServiceAccountToken.Audience
		}
	}
	return ""
}

// checkToken has the API server review a token like the pod's.
func (e *examination) checkToken(ctx context.Context) doctor.Finding {
	if !asks(e.pod) {
		return doctor.Skipped("There is no injected pod.")
	}
	audience := e.audience()
	if e.Audience != "" && audience != e.Audience {
		return doctor.Failed("AudienceDiffers", doctor.Do("Give webhook and server the same --audience, and create the pod again:", "kubectl edit configmap -n iam-system settings"),
			"The pod's token has another audience than the server's.").Compare("pod", orNone(audience), "server", e.Audience)
	}
	show := e.in("kubectl create token %s --audience %s --bound-object-kind Pod --bound-object-name %s",
		shell.Word(e.ServiceAccount, "SERVICE_ACCOUNT"), shell.Word(audience, "AUDIENCE"), shell.Word(e.Pod, "POD"))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: e.Pod, UID: e.pod.UID}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.ServiceAccount}}
	if err := e.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return kube.Unread("a token of the pod", err, show)
	}
	e.token = request.Status.Token
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: e.token, Audiences: []string{audience}}}
	if err := e.Client.Create(ctx, review); err != nil {
		return kube.Unread("the review of a token", err, show)
	}
	if s := review.Status; !s.Authenticated || !slices.Contains(s.Audiences, audience) {
		return doctor.Failed("TokenRefused", e.recreate("Read the API server's log"), "The API server refuses a token of the pod for the server.").
			Compare("review", fmt.Sprintf("authenticated %t, audiences %s", s.Authenticated, orNone(strings.Join(s.Audiences, ", "))), "expected", "authenticated true, audiences "+audience).Detail("error", fmt.Sprintf("%.300s", s.Error))
	}
	return doctor.Passed("The API server accepts a token of the pod for the server.")
}

// checkSidecar goes by the startup probe, which succeeds once the sidecar has credentials.
func (e *examination) checkSidecar(context.Context) doctor.Finding {
	if !asks(e.pod) {
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
	return doctor.Failed("SidecarWaits", doctor.Do("Read the sidecar's log, which has the reason:", e.in("kubectl logs %s -c %s", pod, webhook.ProxyContainer)),
		"The sidecar has no credentials yet, so the pod waits.")
}

// recreate deletes only a pod whose owner creates it again.
func (e *examination) recreate(text string) doctor.Remedy {
	if metav1.GetControllerOf(e.pod) == nil {
		return doctor.Do(text + ", and create the pod again.")
	}
	return doctor.Do(text+". Delete the pod, and its owner creates it again; nothing but this pod is lost:", e.in("kubectl delete pod %s", shell.Word(e.Pod, "POD")))
}
