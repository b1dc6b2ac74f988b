package doctor

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/shell"
)

// restartOf is how to have a pod start anew: a command where something is known to bring it back, else a sentence. Deleting
// a pod that has no owner would be the end of it.
func (e *examination) restartOf(ctx context.Context, pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "recreate the pod from its manifest: it has no owner that would start a new one once it is deleted"
	}
	switch group, _, _ := strings.Cut(owner.APIVersion, "/"); {
	case group == "apps" && (owner.Kind == "StatefulSet" || owner.Kind == "DaemonSet"):
		return rollout(pod.Namespace, strings.ToLower(owner.Kind), owner.Name)
	case group == "apps" && owner.Kind == "ReplicaSet":
		return e.restartReplicaSet(ctx, pod, owner)
	case owner.APIVersion == "v1" && owner.Kind == "ReplicationController":
		return deletion(pod)
	}
	return fmt.Sprintf("restart the pod by way of its owner, the %s %s", shell.Word(owner.Kind, "KIND"),
		shell.Word(owner.Name, "OWNER_NAME"))
}

// restartReplicaSet looks for the Deployment, whose rollout the ReplicaSet is a step of. What else makes ReplicaSets may undo
// what is done to its pods.
func (e *examination) restartReplicaSet(ctx context.Context, pod *corev1.Pod, owner *metav1.OwnerReference) string {
	name := shell.Word(owner.Name, "OWNER_NAME")
	if e.Client == nil {
		return "restart what owns the ReplicaSet " + name + ", with kubectl rollout restart if it is a Deployment"
	}
	set, err := getObject(ctx, e.Reader, "apps/v1", "ReplicaSet", client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name})
	if err != nil {
		return "restart what owns the ReplicaSet " + name + ", with kubectl rollout restart if it is a Deployment"
	}
	switch above := metav1.GetControllerOf(set); {
	case above == nil:
		return deletion(pod)
	case above.Kind == "Deployment" && strings.HasPrefix(above.APIVersion, "apps/"):
		return rollout(pod.Namespace, "deployment", above.Name)
	default:
		return fmt.Sprintf("restart the pod by way of what owns its ReplicaSet, the %s %s", shell.Word(above.Kind, "KIND"),
			shell.Word(above.Name, "OWNER_NAME"))
	}
}

func rollout(namespace, kind, name string) string {
	return fmt.Sprintf("kubectl rollout restart -n %s %s %s", shell.Word(namespace, "NAMESPACE"), kind,
		shell.Word(name, "OWNER_NAME"))
}

// deletion is for pods whose owner starts a new one.
func deletion(pod *corev1.Pod) string {
	return fmt.Sprintf("kubectl delete pod -n %s %s", shell.Word(pod.Namespace, "NAMESPACE"), shell.Word(pod.Name, "POD_NAME"))
}

// renewal is how to get a new token: nobody asks for one in a pod, where the kubelet keeps what it has got.
func (e *examination) renewal(ctx context.Context) string {
	switch c := e.token.claims; {
	case e.minted.tried:
		return "request a new token"
	case e.pod != nil && e.podErr == nil && (c == nil || c.Pod == "" || c.Pod == e.pod.Name && c.Namespace == e.pod.Namespace):
		return "restart the pod: the kubelet keeps a token for as long as the pod lives\n" + e.restartOf(ctx, e.pod)
	case e.InPod || c != nil && c.Pod != "":
		return "restart the pod: the kubelet keeps a token for as long as the pod lives"
	}
	return "request a new token"
}

// renewalOfPod is renewal for the token of a pod that is gone, while another one has its name.
func (e *examination) renewalOfPod(ctx context.Context) string {
	const anew = "the kubelet writes a new token into the new pod: read that one, or restart the pod"
	if e.uidOfPod() == "" {
		return anew
	}
	return anew + "\n" + e.restartOf(ctx, e.pod)
}
