package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/shell"
)

// DryRun lets the API server create a copy of the pod, for which it asks the real webhooks. Nothing is stored.
func DryRun(ctx context.Context, c client.Client, pod *corev1.Pod) (*corev1.Pod, error) {
	another := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "wid-doctor-", Labels: pod.Labels, Annotations: pod.Annotations},
		Spec: *pod.Spec.DeepCopy()}
	another.Spec.NodeName, another.Spec.EphemeralContainers = "", nil
	return another, c.Create(ctx, another, client.DryRunAll)
}

// Recreate deletes only a pod whose owner creates it again, and says what is lost.
func Recreate(pod *corev1.Pod, text string) doctor.Remedy {
	if metav1.GetControllerOf(pod) == nil {
		return doctor.Do(text + " No controller owns the pod, so create it again from its manifest.")
	}
	return doctor.Do(text+" Delete the pod, and its owner creates another one. You lose its local data:",
		"kubectl delete pod -n "+shell.Word(pod.Namespace, "NAMESPACE")+" "+shell.Word(pod.Name, "POD_NAME"))
}
