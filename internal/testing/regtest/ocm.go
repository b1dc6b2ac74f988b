package regtest

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Finalizers of Open Cluster Management.
const (
	WorkCleanup     = "cluster.open-cluster-management.io/manifest-work-cleanup"
	ResourceCleanup = "cluster.open-cluster-management.io/resource-cleanup"
)

// WorkCRD has of ManifestWorks what a hub needs.
const WorkCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: manifestworks.work.open-cluster-management.io}
spec:
  group: work.open-cluster-management.io
  names: {kind: ManifestWork, plural: manifestworks}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true,
     schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func rule(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
}

// LeftByOCM returns what the hub of Open Cluster Management leaves of an
// accepted cluster, apart from its status.
func LeftByOCM(cluster string) []client.Object {
	named := func(namespace, suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: registration.ClusterRoleName(cluster) + suffix,
			Labels: map[string]string{ocm.ClusterNameLabel: cluster}}
	}
	refer := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: registration.ClusterRoleName(name)}
	}
	var subjects []rbacv1.Subject
	for _, group := range registration.ClusterGroups(cluster) {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	work := &rbacv1.RoleBinding{ObjectMeta: named(cluster, ":work"), RoleRef: refer("work"), Subjects: subjects}
	work.Finalizers = []string{WorkCleanup}
	own, now, seconds := []string{cluster}, metav1.NowMicro(), int32(60)
	return []client.Object{
		&ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster, Finalizers: []string{ocm.Finalizer, ResourceCleanup},
			Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": "default"}},
			Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: seconds}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster,
			Labels: map[string]string{ocm.ClusterNameLabel: cluster}}},
		&rbacv1.ClusterRole{ObjectMeta: named("", ""), Rules: []rbacv1.PolicyRule{
			rule("certificates.k8s.io", "certificatesigningrequests", nil, "create", "get", "list", "watch"),
			rule("register.open-cluster-management.io", "managedclusters/clientcertificates", nil, "renew"),
			rule(ocm.GroupVersion.Group, "managedclusters", own, "get", "list", "update", "watch"),
			rule(ocm.GroupVersion.Group, "managedclusters/status", own, "patch", "update"),
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", ""), RoleRef: refer(cluster), Subjects: subjects},
		&rbacv1.RoleBinding{ObjectMeta: named(cluster, ":registration"), RoleRef: refer("registration"), Subjects: subjects},
		work,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: ocm.LeaseName,
			Labels: map[string]string{ocm.ClusterNameLabel: cluster}},
			Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &now}},
	}
}

// OCMHub returns the programs of a hub of Open Cluster Management, with those
// parts of their RBAC that meet ours.
func OCMHub() []client.Object {
	deployment := func(namespace, name, app string) *appsv1.Deployment {
		labels := map[string]string{"app": app}
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "program", Image: "ocm"}}}}}}
	}
	shared := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{ocm.ClusterNameLabel: ""}}, Rules: rules}
	}
	const program = "open-cluster-management:cluster-manager-registration:controller"
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: HubNamespace}},
		deployment("open-cluster-management", "cluster-manager", "cluster-manager"),
		deployment(HubNamespace, "cluster-manager-registration-controller", "clustermanager-registration-controller"),
		deployment(HubNamespace, "cluster-manager-addon-manager-controller", "clustermanager-addon-manager-controller"),
		deployment(HubNamespace, "cluster-manager-registration-webhook", "clustermanager-registration-webhook"),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: HubNamespace, Name: HubAccount}},
		shared(program, rule(ocm.GroupVersion.Group, "managedclusters", nil, "get", "list", "watch", "update", "patch")),
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: program},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: program},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: HubNamespace, Name: HubAccount}}},
		shared(registration.ClusterRoleName("registration"),
			rule("coordination.k8s.io", "leases", nil, "get", "list", "watch", "update"),
			rule("addon.open-cluster-management.io", "managedclusteraddons", nil, "get", "list", "watch"),
			rule("addon.open-cluster-management.io", "managedclusteraddons/status", nil, "patch", "update"),
			rule("events.k8s.io", "events", nil, "create")),
		shared(registration.ClusterRoleName("work"),
			rule("work.open-cluster-management.io", "manifestworks", nil, "get", "list", "watch", "update", "patch"),
			rule("work.open-cluster-management.io", "manifestworks/status", nil, "patch", "update")),
		shared("open-cluster-management:bootstrap",
			rule("certificates.k8s.io", "certificatesigningrequests", nil, "create", "get", "list", "watch"),
			rule(ocm.GroupVersion.Group, "managedclusters", nil, "get", "create"),
			rule(ocm.GroupVersion.Group, "managedclustersets/join", nil, "create")),
	}
}

// AcceptedByOCM is the condition of an accepted cluster.
func AcceptedByOCM() metav1.Condition {
	return metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: ocm.ReasonHubAccepted,
		Message:            "Accepted by hub cluster admin",
		LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))}
}
