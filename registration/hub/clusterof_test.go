package hub

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestClusterOf(t *testing.T) {
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	for _, test := range []struct {
		name, want string
		object     client.Object
	}{
		{"role", "cluster1", &rbacv1.ClusterRole{ObjectMeta: named("", registration.ClusterRoleName("cluster1"))}},
		{"shared role", "", &rbacv1.ClusterRole{ObjectMeta: named("", registrationRole)}},
		{"another role", "", &rbacv1.ClusterRole{ObjectMeta: named("", "cluster-admin")}},
		{"cluster binding", "cluster1",
			&rbacv1.ClusterRoleBinding{ObjectMeta: named("", registration.ClusterRoleName("cluster1"))}},
		{"role of the relay", "cluster1",
			&rbacv1.ClusterRole{ObjectMeta: named("", registration.ClusterRoleName("cluster1")+relaySuffix)}},
		{"binding of the relay", "cluster1",
			&rbacv1.ClusterRoleBinding{ObjectMeta: named("", registration.ClusterRoleName("cluster1")+relaySuffix)}},
		{"registration binding", "cluster1",
			&rbacv1.RoleBinding{ObjectMeta: named("cluster1", registration.ClusterRoleName("cluster1")+":registration")}},
		{"work binding", "cluster1",
			&rbacv1.RoleBinding{ObjectMeta: named("cluster1", registration.ClusterRoleName("cluster1")+":work")}},
		{"binding in another namespace", "cluster10",
			&rbacv1.RoleBinding{ObjectMeta: named("cluster10", registration.ClusterRoleName("cluster1")+":work")}},
		{"namespace", "cluster1", &corev1.Namespace{ObjectMeta: named("", "cluster1")}},
		{"namespace of Kubernetes", "", &corev1.Namespace{ObjectMeta: named("", "kube-system")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := clusterOf(test.object); got != test.want {
				t.Errorf("the cluster is %q, want %q", got, test.want)
			}
		})
	}
}

func TestHubReconcilesOnlyForChangesThatMatter(t *testing.T) {
	status := func(kind string, s metav1.ConditionStatus, message string) func(*ocm.ManagedCluster) {
		return func(c *ocm.ManagedCluster) {
			c.Status.Conditions = []metav1.Condition{{Type: kind, Status: s, Message: message}}
		}
	}
	for _, test := range []struct {
		name   string
		change func(*ocm.ManagedCluster)
		want   bool
	}{
		{"nothing", func(*ocm.ManagedCluster) {}, false},
		{"spec", func(c *ocm.ManagedCluster) { c.Generation++ }, true},
		{"annotations", func(c *ocm.ManagedCluster) { c.Annotations = map[string]string{"a": "b"} }, true},
		{"finalizers", func(c *ocm.ManagedCluster) { c.Finalizers = []string{"a"} }, true},
		{"deletion", func(c *ocm.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{} }, true},
		{"labels", func(c *ocm.ManagedCluster) { c.Labels = map[string]string{"a": "b"} }, false},
		{"the hub's own condition", status(ocm.ConditionHubAccepted, metav1.ConditionFalse, "failed at 12:00"), false},
		{"joined", status(ocm.ConditionJoined, metav1.ConditionTrue, ""), true},
		{"available", status(ocm.ConditionAvailable, metav1.ConditionTrue, ""), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := &ocm.ManagedCluster{}
			now := before.DeepCopy()
			test.change(now)
			if got := matters(event.UpdateEvent{ObjectOld: before, ObjectNew: now}); got != test.want {
				t.Errorf("a reconcile: %v, want %v", got, test.want)
			}
		})
	}
}
