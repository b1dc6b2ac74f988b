package doctor

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EKS Pod Identity gives pods an endpoint for credentials, by the variable below, where IRSA gives them a token. The role comes
// from an association in EKS, so the ServiceAccount needs no annotation.
const (
	endpointVariable = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	byPodIdentity    = "the pod gets its role from EKS Pod Identity, or another endpoint in " + endpointVariable
)

// readPod reads the pod that was named, for the checks that look at it.
func (e *examination) readPod(ctx context.Context) {
	key := e.Pod
	if c := e.token.claims; key.Name == "" && e.InPod && e.ServiceAccount.Name == "" && c != nil {
		key = client.ObjectKey{Namespace: c.Namespace, Name: c.Pod} // this one
	}
	if e.pod == nil {
		e.fetchPod(ctx, key)
	}
	inside := e.InPod && e.ServiceAccount.Name == ""
	found := e.pod != nil && e.podErr == nil
	switch {
	case e.Provider.GetName() != "aws":
	case inside:
		e.podIdentity = e.Getenv(endpointVariable) != "" && e.Getenv(e.cloud.tokenFile) == ""
	case found:
		e.podIdentity = hasAny(e.pod, endpointVariable) && !hasAny(e.pod, e.cloud.tokenFile)
	}
	if found && !inside {
		e.adoptSpecification(ctx)
	}
}

func (e *examination) fetchPod(ctx context.Context, key client.ObjectKey) {
	if key.Name == "" || e.Client == nil {
		return
	}
	pod := &corev1.Pod{}
	err := e.read
	if !isCacheEmpty(err) { // it would be waited for once more
		err = readObject(ctx, e.Reader, "v1", "Pod", key, pod)
	}
	if err == nil && isHuge(pod) {
		pod, err = &corev1.Pod{}, errHuge
	}
	if err == nil || e.Pod.Name != "" { // few pods may read themselves: nobody has asked for it
		e.Pod, e.pod, e.podErr = key, pod, err
	}
}

const (
	// maxPod is more than etcd takes of an object, in bytes.
	maxPod = 2 << 20
	// maxContainers, maxVolumes and maxLabels are more than any pod has that runs. Each container is held against each volume.
	maxContainers, maxVolumes, maxLabels = 250, 1000, 200
)

var errHuge = errors.New("it is larger than pods can be")

// isHuge says that to examine the pod would take as long as whoever wrote it likes.
func isHuge(pod *corev1.Pod) bool {
	volumes := len(pod.Spec.Volumes)
	for i := range pod.Spec.Volumes {
		if p := pod.Spec.Volumes[i].Projected; p != nil {
			volumes += len(p.Sources)
		}
	}
	return pod.Size() > maxPod || len(pod.Spec.Containers)+len(pod.Spec.InitContainers) > maxContainers || volumes > maxVolumes ||
		len(pod.Labels) > maxLabels
}
