package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// watched are the resources that the program caches.
// TestCacheKeepsLittleOfEachType of package hub has a row for each.
var watched = []string{
	"certificatesigningrequests (metadata)", "clusterrolebindings", "clusterroles (metadata)",
	"managedclusteraddons (metadata)", "managedclusters",
	"namespaces", "rolebindings", "roles", "serviceaccounts",
}

// watches records what is watched through a transport.
type watches struct {
	http.RoundTripper
	mu  sync.Mutex
	all map[string]bool
}

func (w *watches) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") != "" {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			resource += " (metadata)"
		}
		w.mu.Lock()
		w.all[resource] = true
		w.mu.Unlock()
	}
	return w.RoundTripper.RoundTrip(r)
}

func (w *watches) sorted() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for resource := range w.all {
		all = append(all, resource)
	}
	slices.Sort(all)
	return all
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // it fits
}

// largest returns objects of each kind that are about as large as etcd takes
// them, in the memory of an informer several times as large.
func largest(i int) []client.Object {
	owned := func(namespace string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("large", i),
			Labels: map[string]string{ocm.ClusterNameLabel: "cluster1"}}
		for range 20_000 {
			m.OwnerReferences = append(m.OwnerReferences,
				metav1.OwnerReference{APIVersion: "v1", Kind: "K", Name: "n", UID: "u"})
		}
		return m
	}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "none"}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("large", i)},
			Secrets: make([]corev1.ObjectReference, 80_000)},
		&corev1.Namespace{ObjectMeta: owned("")},
		&rbacv1.Role{ObjectMeta: owned("default")},
		&rbacv1.ClusterRole{ObjectMeta: owned("")},
		&rbacv1.RoleBinding{ObjectMeta: owned("default"), RoleRef: role},
		&rbacv1.ClusterRoleBinding{ObjectMeta: owned(""), RoleRef: role},
		&ocm.ManagedCluster{ObjectMeta: owned("")},
		&addon.ManagedClusterAddOn{ObjectMeta: owned("default")},
		&certificatesv1.CertificateSigningRequest{ObjectMeta: owned(""), Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request(), SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}},
	}
}

// Tenants of the hub fill every kind of object that the program caches.
func TestHubCachesLittle(t *testing.T) {
	const each, most = 4, 16 << 20
	cluster := kubetest.StartNew(t)
	if _, err := scenario.Apply(t.Context(), cluster.Client(), ocm.CRD(), addon.CRD()); err != nil {
		t.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for i := range each {
		for _, o := range largest(i) {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatalf("%T: %.300v", o, err)
			}
		}
	}
	small := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addon1"}}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster1",
		Labels: map[string]string{ocm.ClusterNameLabel: "cluster1"}}},
		&ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"},
			Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}}, small} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	small.Status.Registrations = []addon.RegistrationConfig{{Type: ocm.KubeClient,
		KubeClient: &addon.KubeClientConfig{Driver: registration.AuthTypeToken,
			Subject: addon.KubeClientSubject{User: "system:serviceaccount:cluster1:cluster1-addon1-agent"}}}}
	if err := admin.Status().Update(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	o,
		err := parseFlags([]string{"--addon-registration-auth=csr,token", "--metrics-bind-address=0",
		"--health-probe-bind-address=0"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	w, config := &watches{all: map[string]bool{}}, rest.CopyConfig(cluster.Config())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { w.RoundTripper = next; return w })
	before := heap()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runHub(ctx, config, o) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	err = scenario.Wait(t.Context(), "the program does not work", func(ctx context.Context) (bool, error) {
		joined := &ocm.ManagedCluster{}
		err := admin.Get(ctx, client.ObjectKey{Name: "cluster1"}, joined)
		if err == nil {
			err = admin.Get(ctx, client.ObjectKeyFromObject(small), small)
		}
		return meta.IsStatusConditionTrue(joined.Status.Conditions, ocm.ConditionHubAccepted) &&
			meta.IsStatusConditionTrue(small.Status.Conditions, addon.ConditionTokenInfrastructureReady) &&
			len(w.sorted()) >= len(watched), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.sorted(); !slices.Equal(got, watched) {
		t.Errorf("it watches %q", got)
	}
	if grew := heap() - before; grew > most {
		t.Errorf("it takes %d MiB", grew>>20)
	}
}

// request returns a request of a form that the API server accepts.
func request() []byte {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)                             // never fails
	der, _ := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key) // an empty one has an encoding
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
