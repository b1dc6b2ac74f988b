package regtest

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

// ExpectIsolated uses the hub as the agent: what it may do for its own cluster,
// it may not for its neighbour.
func (m *Member) ExpectIsolated(neighbour string) {
	m.T.Helper()
	t, own := m.T, m.Own()
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
		if !may(r.name, m.Name, r.verb, r.group, r.resource, r.subresource) {
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
	for _, namespace := range []string{m.Name, neighbour, "kube-system", "open-cluster-management",
		"open-cluster-management-hub"} {
		for _, verb := range []string{"get", "list", "create"} {
			if may("", namespace, verb, "", "secrets", "") || may("", namespace, verb, "", "serviceaccounts", "token") ||
				may("", namespace, verb, "rbac.authorization.k8s.io", "rolebindings", "") {
				t.Errorf("it may %s secrets, tokens or RoleBindings in namespace %q", verb, namespace)
			}
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
		"patch the ManagedCluster": own.Patch(t.Context(), m.Cluster(neighbour), patch),
		"patch its status":         own.Status().Patch(t.Context(), m.Cluster(neighbour), patch),
		"read the Lease": own.Get(t.Context(), client.ObjectKey{Namespace: neighbour, Name: ocm.LeaseName},
			&coordinationv1.Lease{}),
		"create a Lease": own.Create(t.Context(),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: neighbour, Name: "a"}}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s of %s: %v", what, neighbour, err)
		}
	}
}
