package regtest

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// ExpectIsolated uses the hub as the agent: what it may do for its own cluster,
// it may not for its neighbour.
func (m *Member) ExpectIsolated(neighbour string) {
	m.T.Helper()
	m.Environment.ExpectIsolated(m.Own(), m.Name, neighbour)
}

// ExpectIsolated uses the hub as the agent of a cluster.
func (w *Environment) ExpectIsolated(own client.Client, cluster, neighbour string) {
	w.T.Helper()
	t := w.T
	may := func(name, namespace, verb, group, resource, subresource string) bool {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Name: name, Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource}}}
		Must(t, own.Create(t.Context(), review))
		return review.Status.Allowed
	}
	for _, r := range []struct{ verb, group, resource, subresource, name string }{
		{"get", "coordination.k8s.io", "leases", "", ocm.LeaseName},
		{"update", "coordination.k8s.io", "leases", "", ocm.LeaseName},
		{"list", "addon.open-cluster-management.io", "managedclusteraddons", "", ""},
		{"patch", "addon.open-cluster-management.io", "managedclusteraddons", "status", ""},
		{"list", "work.open-cluster-management.io", "manifestworks", "", ""},
		{"patch", "work.open-cluster-management.io", "manifestworks", "status", ""},
		{"create", "events.k8s.io", "events", "", ""},
	} {
		if !may(r.name, cluster, r.verb, r.group, r.resource, r.subresource) {
			t.Errorf("it may not %+v at home", r)
		}
		if may(r.name, neighbour, r.verb, r.group, r.resource, r.subresource) {
			t.Errorf("it may %+v at its neighbour's", r)
		}
	}
	for _, verb := range []string{"get", "patch", "update", "delete", "list", "watch"} {
		if may(neighbour, "", verb, ocm.GroupVersion.Group, "managedclusters", "") ||
			may(neighbour, "", verb, ocm.GroupVersion.Group, "managedclusters", "status") {
			t.Errorf("it may %s its neighbour's ManagedCluster", verb)
		}
	}
	if may(neighbour, "", "renew", "register.open-cluster-management.io", "managedclusters", "clientcertificates") {
		t.Error("it may renew its neighbour's certificate")
	}
	for _, namespace := range []string{cluster, neighbour, "kube-system", "open-cluster-management",
		"open-cluster-management-hub"} {
		for _, verb := range []string{"get", "list", "create"} {
			if may("", namespace, verb, "", "secrets", "") || may("", namespace, verb, "", "serviceaccounts", "token") ||
				may("", namespace, verb, "rbac.authorization.k8s.io", "rolebindings", "") {
				t.Errorf("it may %s secrets, tokens or RoleBindings in namespace %q", verb, namespace)
			}
		}
	}
	if may("", "", "list", ocm.GroupVersion.Group, "managedclusters", "") {
		t.Error("it may list all ManagedClusters")
	}
	for _, verb := range []string{"patch", "update"} {
		if may(registration.ClusterRoleName(cluster), "", verb, rbacv1.GroupName, "clusterroles", "") {
			t.Errorf("it may %s the record of what it claims", verb)
		}
		if may("a", cluster, verb, "coordination.k8s.io", "leases", "") {
			t.Errorf("it may %s a Lease of another name", verb)
		}
	}
	if may("", "", "update", "certificates.k8s.io", "certificatesigningrequests", "approval") ||
		may("", "", "list", "certificates.k8s.io", "certificatesigningrequests", "") {
		t.Error("it may approve or list requests")
	}
	// The same for real, as far as the API server serves it.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
	for what, err := range map[string]error{
		"read the ManagedCluster":  own.Get(t.Context(), client.ObjectKey{Name: neighbour}, &ocm.ManagedCluster{}),
		"patch the ManagedCluster": own.Patch(t.Context(), w.Cluster(neighbour), patch),
		"patch its status":         own.Status().Patch(t.Context(), w.Cluster(neighbour), patch),
		"read the Lease": own.Get(t.Context(), client.ObjectKey{Namespace: neighbour, Name: ocm.LeaseName},
			&coordinationv1.Lease{}),
		"create a Lease": own.Create(t.Context(),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: neighbour, Name: "a"}}),
		"patch the record": own.Patch(t.Context(),
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName(neighbour)}}, patch),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s of %s: %v", what, neighbour, err)
		}
	}
}

// ExpectAgent uses the hub as the agent, and expects the user and the groups of
// its certificate.
func (w *Environment) ExpectAgent(own client.Client, cluster, agent string) {
	w.T.Helper()
	user, want := UserOf(w.T, own), registration.AgentUser(cluster, agent)
	groups := []string{ocm.ManagedClustersGroup, registration.ClusterGroup(cluster), "system:authenticated"}
	slices.Sort(user.Groups)
	slices.Sort(groups)
	if user.Username != want || !slices.Equal(user.Groups, groups) {
		w.T.Errorf("the hub sees %q in %q, want %q in %q", user.Username, user.Groups, want, groups)
	}
}
