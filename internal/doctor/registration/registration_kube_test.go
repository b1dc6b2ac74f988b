package registration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// kindsOfHub are the kinds that both sides know, without their schemas.
func kindsOfHub(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	for _, k := range []struct{ group, version, kind, scope string }{
		{"cluster.open-cluster-management.io", "v1", "ManagedCluster", "Cluster"},
		{"operator.open-cluster-management.io", "v1", "Klusterlet", "Cluster"},
		{"addon.open-cluster-management.io", "v1beta1", "ManagedClusterAddOn", "Namespaced"},
	} {
		plural := strings.ToLower(k.kind) + "s"
		crd := object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": plural + "." + k.group,
			"annotations": object{"api-approved.kubernetes.io": "unapproved, a test"}},
			"spec": object{"group": k.group, "scope": k.scope, "names": object{"plural": plural, "singular": strings.ToLower(k.kind), "kind": k.kind, "listKind": k.kind + "List"},
				"versions": []any{object{"name": k.version, "served": true, "storage": true, "subresources": object{"status": object{}},
					"schema": object{"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}
		if err := cluster.Client().Create(t.Context(), &unstructured.Unstructured{Object: crd}); err != nil {
			t.Fatal(err)
		}
	}
	end := time.Now().Add(time.Minute)
	for _, kind := range []string{"ManagedCluster", "Klusterlet", "ManagedClusterAddOn"} {
		for !served(t, cluster, kind) {
			if time.Now().After(end) {
				t.Fatalf("%s is not served", kind)
			}
		}
	}
}

func served(t *testing.T, cluster *kubetest.Cluster, kind string) bool {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetKind(kind + "List")
	list.SetAPIVersion(map[string]string{"ManagedCluster": "cluster.open-cluster-management.io/v1", "Klusterlet": "operator.open-cluster-management.io/v1",
		"ManagedClusterAddOn": "addon.open-cluster-management.io/v1beta1"}[kind])
	return newClient(t, cluster.Config()).List(t.Context(), list) == nil
}

// newClient knows no kinds, as that of the command.
func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// store creates an object and its status.
func store(t testing.TB, cluster *kubetest.Cluster, o object) {
	t.Helper()
	content, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	created := &unstructured.Unstructured{}
	if err := created.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client().Create(t.Context(), created); err != nil {
		t.Fatal(err)
	}
	if status, ok := o["status"]; ok {
		created.Object["status"] = status
		if err := cluster.Client().Status().Update(t.Context(), created); err != nil {
			t.Fatal(err)
		}
	}
}

// storeEnvironment has the API server hold what the environment's clients make up.
func (w *environment) storeEnvironment(cluster *kubetest.Cluster) {
	w.t.Helper()
	for _, namespace := range []string{"cluster1", "agents"} {
		err := cluster.Client().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
	}
	for _, o := range []object{w.cluster, w.lease, w.klusterlet, w.addon, w.boot, w.agent, w.role, w.binding} {
		store(w.t, cluster, o)
	}
}

// A real API server as hub and as cluster: one that is no hub yet, all well, a request that waits, and who may not look.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	cluster := kubetest.StartNew(t)
	w := newEnvironment(t)
	w.config.Hub, w.config.Spoke = newClient(t, cluster.Config()), newClient(t, cluster.Config())
	report := w.run()
	if hub, agent := report.Of("sides"), report.Of("agent"); hub.Class != "WrongKubeconfig" || agent.Result != doctor.Skip {
		t.Errorf("without the kinds:\n%s", report)
	}
	kindsOfHub(t, cluster)
	w.config.Hub, w.config.Spoke = newClient(t, cluster.Config()), newClient(t, cluster.Config())
	if report = w.run(); report.Worst().Class != "AgentMissing" {
		t.Errorf("before anybody joins:\n%s", report)
	}
	w.storeEnvironment(cluster)
	reporttest.Healthy(t, w.run(), secretValue)
	setCondition(w.cluster, "ManagedClusterJoined", "", "", "")
	stored := &unstructured.Unstructured{Object: object{"apiVersion": w.cluster["apiVersion"], "kind": "ManagedCluster"}}
	if err := cluster.Client().Get(t.Context(), client.ObjectKey{Name: "cluster1"}, stored); err != nil {
		t.Fatal(err)
	}
	stored.Object["status"] = w.cluster["status"]
	if err := cluster.Client().Status().Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	requestCertificate(t, cluster)
	report = w.run()
	first := report.Worst()
	if first.Class != "RequestPending" || !strings.HasPrefix(first.Remedy.Commands[0], "wid hub accept --clusters cluster1 --approve-request cluster1-") {
		t.Errorf("a request waits: %+v\n%s", first, report)
	}
	w.config.Hub = newClient(t, cluster.User(t, "looker", "", rbacv1.PolicyRule{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"}, Verbs: []string{"get"}}))
	report = w.run()
	if csr, accepted := report.Of("csr"), report.Of("accept"); csr.Result != doctor.Unknown || accepted.Result != doctor.Pass {
		t.Errorf("without the right to list requests:\n%s", report)
	}
	reporttest.Readable(t, report, secretValue)
}

func requestCertificate(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cluster1-", Labels: map[string]string{"open-cluster-management.io/cluster-name": "cluster1"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: newRequest(t), SignerName: "kubernetes.io/kube-apiserver-client",
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}}
	config := rest.CopyConfig(cluster.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:bootstrap:abcdef", Groups: []string{"system:masters"}}
	agent, err := client.New(config, client.Options{Scheme: cluster.Client().Scheme()})
	if err == nil {
		err = agent.Create(t.Context(), csr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newRequest(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: agentUser, Organization: []string{"system:open-cluster-management:cluster1"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
