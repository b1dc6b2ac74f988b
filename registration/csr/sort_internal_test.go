package csr

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// A joined agent may make as many renewals as it likes. Only its first one uses
// the workers that other clusters' renewals need.
func TestFurtherRenewalsOfAClusterWaitBehindFirstRequests(t *testing.T) {
	renewal := func(name, cluster string) client.Object {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{ocm.ClusterNameLabel: cluster}},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName,
				Username: registration.AgentUser(cluster, "agent")}}
	}
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(renewal("bad-1", "bad"), renewal("bad-2", "bad"),
		renewal("bad-3", "bad"), renewal("calm-1", "calm")).Build()
	h, err := NewHubDriver(HubDriverOptions{Client: c, Reader: c})
	if err != nil {
		t.Fatal(err)
	}
	others := make(chan event.GenericEvent, 10)
	for _, name := range []string{"bad-1", "bad-2", "bad-3", "calm-1", "bad-1"} {
		// the requests are refused, being none
		_, _ = h.sort(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}, others)
	}
	close(others)
	var later []string
	for e := range others {
		later = append(later, e.Object.GetName())
	}
	if len(later) != 2 || later[0] != "bad-2" || later[1] != "bad-3" {
		t.Errorf("behind first requests are %q", later)
	}
}
