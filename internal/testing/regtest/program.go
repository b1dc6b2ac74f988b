package regtest

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Ask makes a request for a certificate as an agent does, and returns its name.
func Ask(t *testing.T, hub, user client.Client, cluster, agent string) (name string) {
	t.Helper()
	in := registration.Input{Now: time.Now(), Cluster: cluster, Agent: agent, Hub: user}
	asked := map[string]bool{}
	for _, r := range RequestsOf(t, hub, cluster) {
		asked[r.Name] = true
	}
	for range 2 { // draws a key, then makes the request
		step, err := csr.New(csr.Options{}).Next(t.Context(), in)
		Must(t, err)
		in.State = step.State
	}
	for _, r := range RequestsOf(t, hub, cluster) {
		if !asked[r.Name] {
			return r.Name
		}
	}
	t.Fatal("no request was made")
	return ""
}

// RequestsOf returns the requests for certificates of a cluster.
func RequestsOf(t *testing.T, hub client.Client, cluster string) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	Must(t, hub.List(t.Context(), &list, client.MatchingLabels{ocm.ClusterNameLabel: cluster}))
	return list.Items
}

// HasCluster reports whether a cluster exists that is not being deleted.
func HasCluster(t *testing.T, hub client.Client, name string) bool {
	t.Helper()
	cluster := &ocm.ManagedCluster{}
	err := hub.Get(t.Context(), client.ObjectKey{Name: name}, cluster)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil && cluster.DeletionTimestamp.IsZero()
}

// Installed returns the ServiceAccounts of manifests with their roles, the
// arguments and the ServiceAccount of their Deployment, and the kinds and names
// of all objects.
func Installed(t *testing.T,
	manifests string) (accounts map[string]string, args []string, account string, names []string) {
	t.Helper()
	accounts = map[string]string{}
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		o := &unstructured.Unstructured{}
		Must(t, yaml.Unmarshal([]byte(document), &o.Object))
		names = append(names, o.GetKind()+" "+o.GetName())
		switch o.GetKind() {
		case "ServiceAccount":
			accounts[o.GetName()] = o.GetAnnotations()[aws.RoleARNAnnotation]
		case "Deployment":
			account, _, _ = unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			for _, c := range containers {
				if container, ok := c.(map[string]any); ok {
					args, _, _ = unstructured.NestedStringSlice(container, "args")
				}
			}
		}
	}
	return accounts, args, account, names
}
