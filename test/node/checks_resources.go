//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// quota runs a pod in a namespace that asks for a CPU limit of each container.
func quota(ctx context.Context, c *cluster) error {
	if err := c.restrictNamespace(ctx, "team-quota",
		"{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: team-quota, name: cpu}, spec: {hard: {limits.cpu: '2'}}}"); err != nil {
		return err
	}
	if err := c.bindAccount(ctx, "team-quota", "quota"); err != nil {
		return err
	}
	return c.until(ctx, time.Minute, "the pod gets its role", func(ctx context.Context) error {
		pod := app("team-quota", "quota", "quota")
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}
		return c.runInjected(ctx, pod, "quota", "prod.team-quota.quota")
	})
}

// limitRange gives the sidecar the memory that a namespace asks for, with the
// flag of docs/podidentity.md.
func limitRange(ctx context.Context, c *cluster) error {
	if err := c.restrictNamespace(ctx, "team-limits",
		"{apiVersion: v1, kind: LimitRange, metadata: {namespace: team-limits, name: memory}, spec: {limits: [{type: Container, min: {memory: 32Mi}}]}}"); err != nil {
		return err
	}
	if err := c.bindAccount(ctx, "team-limits", "limits"); err != nil {
		return err
	}
	pod := func() *corev1.Pod {
		pod := app("team-limits", "limits", "limits")
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
		return pod
	}
	if err := c.until(ctx, 20*time.Second, "the pod is refused", func(ctx context.Context) error {
		refused := pod()
		err := c.Create(ctx, refused)
		switch {
		case err == nil:
			return errors.Join(errors.New("it was admitted"), c.Delete(ctx, refused, client.GracePeriodSeconds(0)))
		case !strings.Contains(err.Error(), "minimum memory usage per Container"):
			return err
		}
		return nil
	}); err != nil {
		return err
	}
	if _, err := c.sh(ctx, `kubectl -n iam-system patch deployment iam-credentials-webhook --type=json \
  -p '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-",
    "value": "--sidecar-requests=cpu=5m,memory=32Mi"}]'
kubectl -n iam-system rollout status deployment iam-credentials-webhook --timeout=1m`); err != nil {
		return err
	}
	return c.until(ctx, time.Minute, "the pod gets its role", func(ctx context.Context) error {
		return c.runInjected(ctx, pod(), "limits", "prod.team-limits.limits")
	})
}

func (c *cluster) restrictNamespace(ctx context.Context, name, object string) error {
	return c.apply(ctx,
		fmt.Sprintf(
			"{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {iam.aws.k8s.io/injection: enabled}}}\n---\n%s\n",
			name, object))
}

// runInjected runs the pod if the webhook knows its binding already.
func (c *cluster) runInjected(ctx context.Context, pod *corev1.Pod, role, session string) error {
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	if !hasSidecar(pod) {
		return errors.Join(errors.New("no sidecar"), c.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	}
	return c.ranApp(ctx, pod, role, session)
}

// removed runs the commands of docs/podidentity.md. Nothing is left of the
// installation.
func (s *podIdentityState) removed(ctx context.Context, c *cluster) error {
	if _, err := c.sh(ctx, `kubectl label namespaces -l iam.aws.k8s.io/injection iam.aws.k8s.io/injection-
kubectl delete namespaces team-a team-b team-quota team-limits --wait=false
kubectl delete mutatingwebhookconfiguration iam-credentials-webhook
kubectl delete -k overlay/node --ignore-not-found`); err != nil {
		return err
	}
	return c.onlyObjects(ctx, s.before)
}
