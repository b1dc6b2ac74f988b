package podidentity

import (
	"cmp"
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/shell"
)

// checkPod also learns the ServiceAccount.
func (e *examination) checkPod(ctx context.Context) doctor.Finding {
	if e.Pod == "" {
		return doctor.Skipped("No pod was named.")
	}
	pod := &corev1.Pod{}
	if err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Pod"), client.ObjectKey{Namespace: e.Namespace, Name: e.Pod}, pod); err != nil {
		return kube.Unread("the pod", err, e.side.Command(e.in("kubectl get pods")))
	}
	e.pod, e.ServiceAccount = pod, cmp.Or(e.ServiceAccount, pod.Spec.ServiceAccountName, "default")
	return doctor.Passed("The pod runs as the ServiceAccount %s.", e.ServiceAccount)
}

// audience returns that of the pod's token.
func (e *examination) audience() string {
	for _, v := range e.pod.Spec.Volumes {
		if v.Name == podidentity.TokenVolume && v.Projected != nil && len(v.Projected.Sources) > 0 && v.Projected.Sources[0].ServiceAccountToken != nil {
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
		return e.fault("AudienceDiffers", "The pod's token has another audience than the server's.").Compare("pod", cmp.Or(audience, "none"), "server", e.Audience)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	err := e.Client.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.ServiceAccount}}, request)
	e.token = request.Status.Token
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: e.token, Audiences: []string{audience}}}
	if err == nil {
		err = e.Client.Create(ctx, review)
	}
	if err != nil {
		return kube.Unread("the review of a token like the pod's", err,
			e.side.Command(e.in("kubectl create token "+shell.Word(e.ServiceAccount, "SERVICE_ACCOUNT")+" --audience "+shell.Word(audience, "AUDIENCE"))))
	}
	if s := review.Status; !s.Authenticated || !slices.Contains(s.Audiences, audience) {
		return e.fault("TokenRefused", "The API server refuses a token like the pod's: %.300q.", s.Error)
	}
	return doctor.Passed("The API server accepts a token like the pod's for the server.")
}

// checkSidecar goes by the startup probe, which succeeds once the sidecar has credentials.
func (e *examination) checkSidecar(context.Context) doctor.Finding {
	if !asks(e.pod) {
		return doctor.Skipped("There is no injected pod.")
	}
	for _, s := range e.pod.Status.InitContainerStatuses {
		if s.Name == podidentity.ProxyContainer && s.Started != nil && *s.Started {
			return doctor.Passed("The sidecar has credentials.")
		}
	}
	return e.fault("SidecarWaits", "The sidecar has not started, or has no credentials yet, so the pod waits.")
}
