//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sdkVariable names a docker archive of an image that has the AWS CLI, or
// Python with boto3. The SDK of Go is always tried.
const sdkVariable = "NODE_AWS_IMAGE"

func sdkChecks() []check {
	if os.Getenv(sdkVariable) == "" {
		return nil
	}
	return []check{{name: "a pod with the AWS CLI or boto3 gets its role", run: otherSDK}}
}

// askAWS prints what the application prints.
const askAWS = `if command -v aws >/dev/null; then arn=$(aws sts get-caller-identity --query Arn --output text)
else arn=$(python3 -c 'import boto3; print(boto3.client("sts").get_caller_identity()["Arn"])'); fi
echo identity "$arn" key`

// otherSDK gives the pod the CA of the simulated AWS, because these SDKs bring
// CAs of their own.
func otherSDK(ctx context.Context, c *cluster) error {
	manifest, err := tarball.LoadManifest(opener(os.Getenv(sdkVariable)))
	if err != nil || len(manifest) == 0 || len(manifest[0].RepoTags) == 0 {
		return errors.Join(err, fmt.Errorf("%s: %q is no docker archive of an image with a name", sdkVariable,
			os.Getenv(sdkVariable)))
	}
	ca, err := os.ReadFile(c.path("ca.pem"))
	if err != nil {
		return err
	}
	bundle := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "ca"},
		Data: map[string]string{"ca.pem": string(ca)}}
	pod := app(tenant, "sdk", "reporting")
	container := &pod.Spec.Containers[0]
	container.Image, container.Command = manifest[0].RepoTags[0], []string{"sh", "-euc", askAWS}
	container.Env = append(container.Env, corev1.EnvVar{Name: "AWS_CA_BUNDLE", Value: "/ca/ca.pem"},
		corev1.EnvVar{Name: "HOME", Value: "/tmp"})
	container.VolumeMounts = []corev1.VolumeMount{{Name: "ca", MountPath: "/ca"}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "ca",
			VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "ca"}}}}}
	return errors.Join(c.Create(ctx, bundle), c.runApp(ctx, pod, "reporting", "prod.team-a.reporting"))
}

func opener(file string) tarball.Opener {
	return func() (io.ReadCloser, error) { return os.Open(file) }
}
