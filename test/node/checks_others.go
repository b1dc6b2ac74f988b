//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func pullChecks() []check {
	return []check{
		{name: "the kubelet pulls from ECR with the pod's identity", run: pulled, needed: true},
		{name: "a pod whose ServiceAccount has no role is refused", run: notPulled},
	}
}

// pulled applies the RBAC of docs/wid.md. The kubelet has run wid as its image
// credential provider since its start.
func pulled(ctx context.Context, c *cluster) error {
	if err := errors.Join(c.trustIssuer(), c.pushToECR(ctx)); err != nil {
		return err
	}
	rbac, err := documented("wid.md", "kind: ClusterRole\nmetadata: {name: wid-image-pulls}")
	if err != nil {
		return err
	}
	c.trustServiceAccount("puller", "tenant-a", "puller")
	if err := c.apply(ctx, rbac+`---
{apiVersion: v1, kind: Namespace, metadata: {name: tenant-a}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: tenant-a, name: puller,
  annotations: {eks.amazonaws.com/role-arn: "`+roleARN+`puller"}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: tenant-a, name: stranger}}
`); err != nil {
		return err
	}
	pod := pulling("puller")
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	return c.until(ctx, 50*time.Second, "the pod runs and ends", func(ctx context.Context) error {
		return c.succeeded(ctx, client.ObjectKeyFromObject(pod))
	})
}

// notPulled also shows that the image on the node is no way around.
func notPulled(ctx context.Context, c *cluster) error {
	pod := pulling("stranger")
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	return c.until(ctx, 30*time.Second, "the registry refuses the pod's image", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		waiting := statusOf(pod, "app").State.Waiting
		if waiting == nil || waiting.Reason != "ErrImagePull" || !strings.Contains(waiting.Message, "401") {
			return fmt.Errorf("container: %+v", statusOf(pod, "app").State)
		}
		return nil
	})
}

func pulling(serviceAccount string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: serviceAccount}, Spec: corev1.PodSpec{
		ServiceAccountName: serviceAccount, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "app", Image: registryHost + "/team/busybox:v1",
			ImagePullPolicy: corev1.PullAlways, Command: []string{"sh", "-c", "echo pulled"}}},
	}}
}

// pushToECR puts an image into the registry behind ECR. Its handler sees no
// credentials.
func (c *cluster) pushToECR(ctx context.Context) error {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	c.cloud.AWS().SetRegistry(handler)
	server := httptest.NewServer(handler)
	defer server.Close()
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/team/busybox:v1")
	if err != nil {
		return err
	}
	image, err := tarball.ImageFromPath(c.path("images", "busybox.tar"), nil)
	if err != nil {
		return err
	}
	return remote.Write(tag, image, remote.WithContext(ctx))
}

// documented returns the YAML of a page of the documents that holds a text.
func documented(page, text string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, "docs", page)) //nolint:gosec // of the project
	if err != nil {
		return "", err
	}
	for block := range strings.SplitSeq(string(content), "```yaml\n") {
		if block, _, _ := strings.Cut(block, "```\n"); strings.Contains(block, text) {
			return block, nil
		}
	}
	return "", fmt.Errorf("docs/%s has no YAML with %q", page, text)
}

func controllerChecks() []check {
	return []check{{name: "writes the identity of a ServiceAccount", run: exampleController, limit: 90 * time.Second}}
}

// exampleController runs the commands of examples/controller/README.md.
func exampleController(ctx context.Context, c *cluster) error {
	if err := c.trustIssuer(); err != nil {
		return err
	}
	c.trustServiceAccount("example", "default", "app")
	if err := c.overlay("controller", "controller"); err != nil {
		return err
	}
	if _, err := c.sh(ctx, `kubectl create serviceaccount app
kubectl annotate serviceaccount app eks.amazonaws.com/role-arn=`+roleARN+`example
kubectl apply -k overlay/controller
kubectl create configmap who --from-literal serviceAccountName=app --from-literal region=eu-central-1
kubectl label configmap who workloadid.example/identity=aws`); err != nil {
		return err
	}
	return c.until(ctx, 80*time.Second, "the ConfigMap shows the identity", func(ctx context.Context) error {
		out, err := c.sh(ctx, "kubectl get configmap who -o jsonpath='{.data.identity}'")
		if err == nil && !strings.Contains(out, ":assumed-role/example/") {
			err = fmt.Errorf("identity %q", out)
		}
		return err
	})
}

// overlay writes a kustomization of a folder of config with the images of this
// build.
func (c *cluster) overlay(system, image string) error {
	config, err := filepath.Abs(filepath.Join(root, "config", system))
	if err != nil {
		return err
	}
	relative, err := filepath.Rel(c.path("overlay", system), config)
	return errors.Join(err, writeFile(c.path("overlay", system, "kustomization.yaml"),
		"resources: ["+relative+"]\nimages: [{name: "+repository+image+", newTag: v1}]\n"))
}
