//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func groups() []group {
	return []group{
		{"node", []check{{name: "a pod runs and ends", run: podEnds}}},
		{"registration", registrationChecks()},
		{"pod identity", podIdentityChecks()},
		{"image pulls", pullChecks()},
		{"example controller", controllerChecks()},
	}
}

// podEnds also looks up the names of a Service and of AWS.
func podEnds(ctx context.Context, c *cluster) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "hello", Image: busyboxImage,
			Command: []string{"sh", "-ec",
				"nslookup sts.amazonaws.com; nslookup kubernetes.default.svc." + domain +
					"; wget -O - http://kubernetes.default.svc:443 2>&1 | grep '400 Bad Request'"}}},
	}}
	if err := c.until(ctx, 20*time.Second, "the namespace's ServiceAccount", func(ctx context.Context) error {
		return c.Create(ctx, pod.DeepCopy())
	}); err != nil {
		return err
	}
	return c.until(ctx, 30*time.Second, "the pod ends", func(ctx context.Context) error {
		return c.succeeded(ctx, client.ObjectKeyFromObject(pod))
	})
}

// succeeded reports whether a pod has ended without an error.
func (c *cluster) succeeded(ctx context.Context, key client.ObjectKey) error {
	var pod corev1.Pod
	if err := c.Get(ctx, key, &pod); err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodSucceeded {
		return fmt.Errorf("pod %q is %s", key, pod.Status.Phase)
	}
	return nil
}
