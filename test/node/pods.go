//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objects returns the names of all objects of the cluster, apart from Events,
// Leases, and what controllers of Kubernetes create late.
func (c *cluster) objects(ctx context.Context) ([]string, error) {
	out,
		err := c.sh(ctx,
		`kinds=$(kubectl api-resources --verbs=list,delete -o name | grep -vxE 'events(\.events\.k8s\.io)?|leases\.coordination\.k8s\.io' | paste -sd,)
kubectl get "$kinds" --all-namespaces --ignore-not-found -o go-template='{{range .items}}{{.kind}} {{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}' | grep -vE '^(ServiceAccount|ConfigMap) (default|kube-[a-z-]+)/'`)
	return strings.Split(strings.TrimSpace(out), "\n"), err
}

// onlyObjects waits until no object is left besides those before.
func (c *cluster) onlyObjects(ctx context.Context, before []string) error {
	return c.until(ctx, 30*time.Second, "all objects are gone", func(ctx context.Context) error {
		now, err := c.objects(ctx)
		left := slices.DeleteFunc(now, func(o string) bool { return slices.Contains(before, o) })
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %s", strings.Join(left, ", "))
		}
		return err
	})
}

// pods returns the pods of a namespace that a selector matches and that are not
// being deleted.
func (c *cluster) pods(ctx context.Context, namespace, selector string) (pods []corev1.Pod, err error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	err = c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: parsed})
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods, err
}

// killContainer ends a container of a pod with SIGKILL, as the kernel does when
// memory is short.
func (c *cluster) killContainer(ctx context.Context, pod *corev1.Pod, container string) error {
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if s.Name == container {
			return c.ctr(ctx, "tasks", "kill", "--signal=SIGKILL", strings.TrimPrefix(s.ContainerID, "containerd://"))
		}
	}
	return fmt.Errorf("pod %q has no container %q", pod.Name, container)
}
