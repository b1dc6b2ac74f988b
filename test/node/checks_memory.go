//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// summary is the part of the kubelet's statistics that says how much memory
// containers use.
type summary struct {
	Pods []struct {
		PodRef     struct{ Namespace, Name string }
		Containers []struct {
			Name   string
			Memory struct{ WorkingSetBytes int64 }
		}
	}
}

// memory prints what the containers of our images use, and compares it with
// what they request.
func memory(namespaces ...string) func(context.Context, *cluster) error {
	return func(ctx context.Context, c *cluster) error {
		out, err := c.sh(ctx, "kubectl get --raw /api/v1/nodes/"+nodeName+"/proxy/stats/summary")
		if err != nil {
			return err
		}
		var stats summary
		if err := json.Unmarshal([]byte(out), &stats); err != nil {
			return err
		}
		used, over := map[string]int64{}, []string(nil)
		for _, p := range stats.Pods {
			var pod corev1.Pod
			if !slices.Contains(namespaces, p.PodRef.Namespace) ||
				c.Get(ctx, client.ObjectKey{Namespace: p.PodRef.Namespace, Name: p.PodRef.Name}, &pod) != nil {
				continue // a pod that has ended meanwhile
			}
			requests := map[string]int64{}
			for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				if strings.HasPrefix(container.Image, repository) {
					requests[container.Name] = container.Resources.Requests.Memory().Value()
				}
			}
			for _, container := range p.Containers {
				request, ours := requests[container.Name]
				if ours {
					name := p.PodRef.Namespace + " " + container.Name
					used[name] = max(used[name], container.Memory.WorkingSetBytes)
				}
				if ours && container.Memory.WorkingSetBytes > request {
					over = append(over, fmt.Sprintf("%s of pod %q uses %d MiB and requests %d", container.Name, p.PodRef.Name,
						container.Memory.WorkingSetBytes>>20, request>>20))
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(used)) {
			fmt.Printf("      %6.1f MiB  %s\n", float64(used[name])/(1<<20), name)
		}
		if len(over) > 0 || len(used) == 0 {
			return fmt.Errorf("%d kinds of containers; over their request: %s", len(used), strings.Join(over, "; "))
		}
		return nil
	}
}
