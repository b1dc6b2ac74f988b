//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/podidentity"
)

// app returns a pod of the application under the Pod Security level restricted.
// Without arguments it asks AWS once and ends.
func app(namespace, name, serviceAccount string, args ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
		ServiceAccountName: serviceAccount, RestartPolicy: corev1.RestartPolicyNever,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "app", Image: appImage, Args: args,
			Env: []corev1.EnvVar{{Name: "AWS_REGION", Value: region}},
			SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(65532)), AllowPrivilegeEscalation: new(false),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
	}}
	return pod
}

// asks makes the application ask AWS twice a second until it is told to end.
func asks() []string { return []string{"-every=500ms"} }

// output is what the application has printed.
type output struct {
	identities, keys, errors []string
	text                     string
}

func (c *cluster) output(ctx context.Context, pod *corev1.Pod) (o output, err error) {
	o.text, err = c.sh(ctx, fmt.Sprintf("kubectl logs -n %s %s -c app", pod.Namespace, pod.Name))
	for line := range strings.SplitSeq(o.text, "\n") {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "error "):
			o.errors = append(o.errors, line)
		case len(fields) == 3 && fields[0] == "identity":
			o.identities = append(o.identities, fields[1])
			if !slices.Contains(o.keys, fields[2]) {
				o.keys = append(o.keys, fields[2])
			}
		}
	}
	return o, err
}

// answered waits for another answer of AWS to the application, and returns all
// output. It fails after an error of the application.
func (c *cluster) answered(ctx context.Context, pod *corev1.Pod, limit time.Duration) (o output, err error) {
	seen := -1
	err = c.until(ctx, limit, "pod "+pod.Name+" gets an answer of AWS", func(ctx context.Context) (err error) {
		if o, err = c.output(ctx, pod); err != nil {
			return err
		}
		if seen < 0 {
			seen = len(o.identities)
		}
		if len(o.identities) <= seen {
			return fmt.Errorf("output: %s", last(o.text, 5))
		}
		return nil
	})
	return o, err
}

// failures counts the errors that the application has printed.
func (o output) failures() error {
	if len(o.errors) == 0 {
		return nil
	}
	return fmt.Errorf("the application failed %d times, first: %s", len(o.errors), o.errors[0])
}

// runApp creates the pod, waits until the application has asked once and ended,
// and checks the session.
func (c *cluster) runApp(ctx context.Context, pod *corev1.Pod, role, session string) error {
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	return c.ranApp(ctx, pod, role, session)
}

func (c *cluster) ranApp(ctx context.Context, pod *corev1.Pod, role, session string) error {
	if err := c.until(ctx, time.Minute, "pod "+pod.Name+" ends", func(ctx context.Context) error {
		return c.succeeded(ctx, client.ObjectKeyFromObject(pod))
	}); err != nil {
		return err
	}
	o, err := c.output(ctx, pod)
	if err != nil {
		return err
	}
	return errors.Join(o.failures(), o.isSession(role, session))
}

// isSession checks the last identity.
func (o output) isSession(role, session string) error {
	want := "arn:aws:sts::" + account + ":assumed-role/" + role + "/" + session
	if len(o.identities) == 0 || o.identities[len(o.identities)-1] != want {
		return fmt.Errorf("the application is not %s: %s", want, last(o.text, 3))
	}
	return nil
}

// startApp creates the pod and waits for the first answer of AWS.
func (c *cluster) startApp(ctx context.Context, pod *corev1.Pod) error {
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	_, err := c.answered(ctx, pod, time.Minute)
	return err
}

// stop deletes the pod and does not wait.
func (c *cluster) stop(ctx context.Context, pod *corev1.Pod) error {
	return c.Delete(ctx, pod, client.GracePeriodSeconds(2))
}

func (c *cluster) fetch(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	now := &corev1.Pod{}
	return now, c.Get(ctx, client.ObjectKeyFromObject(pod), now)
}

func hasSidecar(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == podidentity.ProxyContainer
	})
}

// statusOf returns the status of a container, empty if there is none.
func statusOf(pod *corev1.Pod, container string) (status corev1.ContainerStatus) {
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if s.Name == container {
			status = s
		}
	}
	return status
}

// expiration is the element of an answer of STS.
var expiration = regexp.MustCompile(`<Expiration>[^<]*</Expiration>`)
