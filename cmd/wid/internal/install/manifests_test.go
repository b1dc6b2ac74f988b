package install

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
)

func TestReleaseImage(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                               "ghcr.io/workloadid/wid-hub:v1.2.3",
		"v0.1.0-rc.1":                          "ghcr.io/workloadid/wid-hub:v0.1.0-rc.1",
		"(devel)":                              "",
		"unknown":                              "",
		"v1.2.3+dirty":                         "",
		"v0.0.0-20261122101010-0123456789ab":   "",
		"v1.2.4-0.20261122101010-0123456789ab": "",
	} {
		if got := ReleaseImage(version, "wid-hub"); got != want {
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}

// Pods of Open Cluster Management run in the namespaces of the same names.
func TestPodSecurityIsOfOurNamespacesOnly(t *testing.T) {
	const label = "pod-security.kubernetes.io/enforce"
	for name, row := range map[string]struct {
		manager string // of the namespace that exists
		want    string
	}{"a new namespace": {"", "restricted"}, "our own": {"wid", "restricted"}, "of Open Cluster Management": {"cluster-manager", ""}} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithReturnManagedFields().Build()
			if row.manager != "" {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: regname.HubNamespace, Labels: map[string]string{"a": "b"}}}
				if err := c.Create(t.Context(), namespace, client.FieldOwner(row.manager)); err != nil {
					t.Fatal(err)
				}
			}
			objects, err := manifests.Parse(registration.HubManifest)
			if err == nil {
				err = keepPodSecurity(t.Context(), c, objects[0])
			}
			if got := objects[0].GetLabels()[label]; err != nil || got != row.want {
				t.Errorf("the label is %q, %v", got, err)
			}
		})
	}
}
