package regtest

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ExpectRestricted expects that a namespace enforces the Restricted Pod
// Security Standard, and that the pods of its Deployments and CronJobs start
// there.
func ExpectRestricted(t *testing.T, c client.Client, name string) {
	t.Helper()
	namespace, deployments, jobs := &corev1.Namespace{}, &appsv1.DeploymentList{}, &batchv1.CronJobList{}
	Must(t, c.Get(t.Context(), client.ObjectKey{Name: name}, namespace))
	Must(t, c.List(t.Context(), deployments, client.InNamespace(name)))
	Must(t, c.List(t.Context(), jobs, client.InNamespace(name)))
	if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("namespace %q enforces %q, want restricted", name, got)
	}
	templates := map[string]corev1.PodTemplateSpec{}
	for i := range deployments.Items {
		templates[deployments.Items[i].Name] = deployments.Items[i].Spec.Template
	}
	for i := range jobs.Items {
		templates[jobs.Items[i].Name] = jobs.Items[i].Spec.JobTemplate.Spec.Template
	}
	for of, template := range templates {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.Name = name, "pod"
		if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("a pod of %q does not start: %v", of, err)
		}
	}
	if len(templates) == 0 {
		t.Errorf("namespace %q has no programs", name)
	}
}
