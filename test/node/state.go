//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// state describes the cluster for the message of a failed check: pods, the last
// events, and the logs of containers that are not ready.
func (c *cluster) state(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var text strings.Builder
	for _, ask := range []string{"kubectl get pods --all-namespaces -o wide",
		"kubectl get events --all-namespaces --sort-by=.metadata.creationTimestamp"} {
		out, err := c.sh(ctx, ask)
		if err != nil {
			out = err.Error()
		}
		fmt.Fprintf(&text, "%s\n%s\n", ask, last(out, 25))
	}
	c.describeLogs(ctx, &text)
	return text.String()
}

func (c *cluster) describeLogs(ctx context.Context, text *strings.Builder) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		fmt.Fprintln(text, err)
		return
	}
	for _, pod := range pods.Items {
		for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			done := s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
			if s.Ready && s.RestartCount == 0 || done {
				continue
			}
			out, err := c.sh(ctx, fmt.Sprintf("kubectl logs -n %s %s -c %s --tail=15", pod.Namespace, pod.Name, s.Name))
			if err != nil {
				continue // it has not started: its Events say why
			}
			fmt.Fprintf(text, "log of %s/%s %s, restarted %d times\n%s\n", pod.Namespace, pod.Name, s.Name, s.RestartCount, out)
		}
	}
}

func last(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
