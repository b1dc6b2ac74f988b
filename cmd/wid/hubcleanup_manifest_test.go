package main

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workloadid/workloadid/registration/manifests"
)

// The CronJob runs the image that was named, and there is none without an image.
func TestHubInitPrintsTheCleanup(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	const image = `registry.example/wid@sha256:0 "x": y`
	for _, auth := range [][]string{nil, {"--registration-auth=csr,aws-irsa", "--eks-hub-cluster-arn=" + eksHub}} {
		args := append([]string{"hub", "init", "--image=x"}, auth...)
		if out := must(t, args...); strings.Contains(out, "CronJob") || strings.Contains(out, "cleanup") {
			t.Errorf("printed %s", out)
		}
		job := cleanupJob(t, must(t, append(args, "--cleanup-image="+image)...))
		spec := job.Spec.JobTemplate.Spec
		if container := spec.Template.Spec.Containers[0]; container.Image != image || !slices.Equal(container.Args, []string{"hub", "cleanup"}) ||
			container.Resources.Requests.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("the container is %+v", container)
		}
		if job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent || spec.ActiveDeadlineSeconds == nil {
			t.Errorf("the CronJob is %+v", job.Spec)
		}
	}
}

// cleanupJob returns the CronJob of printed manifests.
func cleanupJob(t *testing.T, printed string) *batchv1.CronJob {
	t.Helper()
	objects, err := manifests.Parse(printed)
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.CronJob{}
	for _, o := range objects {
		if o.GetKind() != "CronJob" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, job, true); err != nil {
			t.Fatal(err)
		}
		return job
	}
	t.Fatal("there is no CronJob")
	return nil
}
