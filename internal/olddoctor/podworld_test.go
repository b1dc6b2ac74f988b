package doctor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// spec changes the pod that the webhook has left.
type spec func(w *world, pod *corev1.Pod)

// env sets a variable of the first container.
func env(name, value string) spec {
	return func(_ *world, pod *corev1.Pod) {
		setEnv(&pod.Spec.Containers[0], corev1.EnvVar{Name: name, Value: value})
	}
}

func setEnv(c *corev1.Container, v corev1.EnvVar) {
	c.Env = slices.DeleteFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == v.Name })
	if v.Value != "" || v.ValueFrom != nil {
		c.Env = append(c.Env, v)
	}
}

// ref sets a variable of the first container to a key of a Secret.
func ref(name string, optional bool) spec {
	return func(_ *world, pod *corev1.Pod) {
		setEnv(&pod.Spec.Containers[0], corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k", Optional: &optional}}})
	}
}

// beside adds a container, as the webhook has left it or without anything.
func beside(name string, injected bool, more ...spec) spec {
	return func(w *world, pod *corev1.Pod) {
		c := corev1.Container{Name: name, Image: "i"}
		if injected {
			c = *pod.Spec.Containers[0].DeepCopy()
			c.Name = name
		}
		pod.Spec.Containers = append([]corev1.Container{c}, pod.Spec.Containers...)
		for _, change := range more {
			change(w, pod)
		}
	}
}

func initContainer(always bool) spec {
	return func(_ *world, pod *corev1.Pod) {
		c := corev1.Container{Name: "first", Image: "i"}
		if policy := corev1.ContainerRestartPolicyAlways; always {
			c.RestartPolicy = &policy
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
}

func podAnnotation(key, value string) spec {
	return func(_ *world, pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} }
}

func envFrom(prefix string) spec {
	return func(_ *world, pod *corev1.Pod) {
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{}}}
	}
}

func audienceOfVolume(audience string) spec {
	return func(_ *world, pod *corev1.Pod) {
		pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.Audience = audience
	}
}

// named has the caller name the container.
func named(container string) spec {
	return func(w *world, _ *corev1.Pod) { w.config.Container = container }
}

func noWebhook(w *world, pod *corev1.Pod) {
	pod.Labels = nil
	for _, key := range []string{aws.RoleARNAnnotation, "azure.workload.identity/client-id", "azure.workload.identity/tenant-id"} {
		delete(w.account.Annotations, key)
	}
}

func all(changes ...spec) spec {
	return func(w *world, pod *corev1.Pod) {
		for _, change := range changes {
			change(w, pod)
		}
	}
}

// annotatedLongAgo has the API server's record say so.
func annotatedLongAgo(w *world, _ *corev1.Pod) {
	at := metav1.NewTime(time.Now().Add(-time.Hour))
	w.managed = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + aws.RoleARNAnnotation + `":{}}}}`)}}
}

// googleFile has Google's SDKs read a file.
func googleFile(content string) func(w *world) {
	return func(w *world) {
		path := filepath.Join(w.dir, "credentials.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			w.t.Fatal(err)
		}
		w.env["GOOGLE_APPLICATION_CREDENTIALS"] = path
	}
}

// pasteable runs no command, but sees to it that lines that begin with one are nothing else: what follows a comma is for people.
func pasteable(t *testing.T, f *doctor.Finding) {
	t.Helper()
	for line := range strings.SplitSeq(f.Remedy, "\n") {
		program, rest, _ := strings.Cut(line, " ")
		if slices.Contains([]string{"kubectl", "az", "aws", "gcloud", "eksctl"}, program) &&
			(strings.Contains(rest, ", ") || strings.Contains(rest, "; ") || strings.Contains(rest, " or ") || strings.Contains(rest, " then ")) {
			t.Errorf("%s: no command alone: %s", f.ID, line)
		}
	}
}

// rewrite changes the token that the environment of the pod leads to.
func (w *world) rewrite(change func(claims map[string]any)) {
	if err := os.WriteFile(w.env["AWS_WEB_IDENTITY_TOKEN_FILE"], []byte(w.sign(change)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}
