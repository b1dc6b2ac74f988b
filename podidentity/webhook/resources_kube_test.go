package webhook_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory)}
}

// The API server admits a pod with its sidecar where it admits it without one,
// and computes the same QoS class.
func TestResourcesOverAllContainers(t *testing.T) {
	w := newEnvironment(t, kubetest.Start(t))
	w.bind(t, "app")
	for name, row := range map[string]struct {
		pod, container corev1.ResourceRequirements
		want           corev1.PodQOSClass
	}{
		"Guaranteed by its containers": {container: corev1.ResourceRequirements{Requests: amounts("2", "1Gi"),
			Limits: amounts("2", "1Gi")},
			want: corev1.PodQOSGuaranteed},
		"Guaranteed by limits alone": {container: corev1.ResourceRequirements{Limits: amounts("2", "1Gi")},
			want: corev1.PodQOSGuaranteed},
		"Burstable": {container: corev1.ResourceRequirements{Limits: amounts("2", "1Gi"),
			Requests: amounts("1", "1Gi")}, want: corev1.PodQOSBurstable},
		"pod-level requests that the containers use up": {pod: corev1.ResourceRequirements{Requests: amounts("100m", "64Mi"),
			Limits: amounts("200m", "128Mi")},
			container: corev1.ResourceRequirements{Requests: amounts("100m", "64Mi")}, want: corev1.PodQOSBurstable},
		"pod-level limits below those of a sidecar": {pod: corev1.ResourceRequirements{Requests: amounts("100m", "32Mi"),
			Limits: amounts("200m", "32Mi")},
			want: corev1.PodQOSBurstable},
		"Guaranteed by the pod": {pod: corev1.ResourceRequirements{Requests: amounts("100m", "32Mi"),
			Limits: amounts("100m", "32Mi")},
			want: corev1.PodQOSGuaranteed},
		"pod-level memory alone": {
			pod: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}}, want: corev1.PodQOSBurstable},
		"pod-level memory and Guaranteed containers": {
			pod: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
			container: corev1.ResourceRequirements{Requests: amounts("1", "512Mi"), Limits: amounts("1", "512Mi")},
			want:      corev1.PodQOSBurstable},
	} {
		t.Run(name, func(t *testing.T) {
			for _, account := range []string{"plain", "app"} {
				pod := w.Pod(account)
				if row.pod.Requests != nil || row.pod.Limits != nil {
					pod.Spec.Resources = row.pod.DeepCopy()
				}
				pod.Spec.Containers[0].Resources = *row.container.DeepCopy()
				if err := w.Create(t.Context(), pod); err != nil {
					t.Errorf("ServiceAccount %q: %v", account, err)
				} else if injected := len(pod.Spec.InitContainers) == 1; injected != (account == "app") ||
					pod.Status.QOSClass != row.want {
					t.Errorf("ServiceAccount %q: the pod is %s, want %s; injected: %t", account, pod.Status.QOSClass, row.want,
						injected)
				}
			}
		})
	}
}

// The API server does not name the container that a LimitRange refuses, so
// docs/podidentity.md quotes the message.
func TestLimitRangeCountsTheSidecar(t *testing.T) {
	const message = `pods "POD" is forbidden: memory max limit to request ratio per Container is 2, but provided ratio is 3.000000`
	w := newEnvironment(t, kubetest.Start(t))
	w.bind(t, "app")
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	w.create(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "ratio"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: memory, DefaultRequest: memory,
			MaxLimitRequestRatio: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2")}}}}})
	named := func(account string) *corev1.Pod {
		pod := w.Pod(account)
		pod.GenerateName, pod.Name = "", "pod-of-"+account
		return pod
	}
	var err error
	kubetest.Eventually(t, "the LimitRange counts", func() bool {
		err = w.Create(t.Context(), named("app"))
		return apierrors.IsForbidden(err)
	})
	if got := strings.Replace(err.Error(), "pod-of-app", "POD", 1); got != message {
		t.Errorf("got %q", got)
	}
	w.create(t, named("plain"))
}
