package serviceaccounts_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/serviceaccounts"
	"github.com/workloadid/workloadid/internal/kubetest"
)

// With a real API server and no more rights than the documentation names: what is created, annotated, deleted and created
// again shows.
func TestRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace, admin := cluster.Namespace(t), cluster.Client()
	user := cluster.User(t, "reads-serviceaccounts", namespace, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list", "watch"}})
	r, err := serviceaccounts.New(user, serviceaccounts.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	start(t, r)
	key := client.ObjectKey{Namespace: namespace, Name: "app"}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app",
		Annotations: map[string]string{aws.RoleARNAnnotation: roleARN, "example.com/other": "x"}}}
	if err := admin.Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the creation", func(got *corev1.ServiceAccount, err error) bool {
		return err == nil && got.UID == sa.UID && got.Annotations[aws.RoleARNAnnotation] == roleARN && len(got.Annotations) == 1
	})
	sa.Annotations[aws.RoleARNAnnotation] = roleARN + "-2"
	if err := admin.Update(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the new annotation", func(got *corev1.ServiceAccount, err error) bool {
		return err == nil && got.Annotations[aws.RoleARNAnnotation] == roleARN+"-2"
	})
	if err := admin.Delete(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the deletion", func(_ *corev1.ServiceAccount, err error) bool { return apierrors.IsNotFound(err) })
	again := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}}
	if err := admin.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the new one", func(got *corev1.ServiceAccount, err error) bool { return err == nil && got.UID == again.UID })
}
