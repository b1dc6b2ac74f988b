package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// requestOfSize returns the request of a cluster's agent. Text before the PEM block counts for nothing.
func requestOfSize(t *testing.T, key *ecdsa.PrivateKey, cluster, name string, size int) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	subject := pkix.Name{CommonName: registration.AgentUser(cluster, "agent1"), Organization: []string{registration.ClusterGroup(cluster), regname.ManagedClustersGroup}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ocm.ClusterNameLabel: cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Request: append(bytes.Repeat([]byte("x\n"), (size-len(block))/2), block...),
			Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}},
	}
}

// Objects of other users are many and large, and the command reads a bounded part of an answer.
func TestHubCommandsOnAHubThatBootstrapUsersFilled(t *testing.T) {
	w := regtest.New(t)
	t.Setenv("KUBECONFIG", w.Hub.Kubeconfig(t))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const objects, size = 90, 15 << 10
	filled := client.MatchingLabels{"test": "filled"}
	t.Cleanup(func() {
		for _, o := range []client.Object{&ocm.ManagedCluster{}, &rbacv1.ClusterRole{}, &certificatesv1.CertificateSigningRequest{}} {
			if err := w.Admin.DeleteAllOf(context.WithoutCancel(t.Context()), o, filled); err != nil {
				t.Log(err)
			}
		}
	})
	for i := range objects {
		name := fmt.Sprintf("filled-%d", i)
		annotations := map[string]string{"x": strings.Repeat("x", size)}
		denied := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: filled, Annotations: annotations}}
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName(name), Annotations: annotations,
			Labels: map[string]string{"test": "filled", ocm.ClusterNameLabel: name}}}
		request := requestOfSize(t, key, "filled-0", name, size*2/3) // base64 counts
		request.Labels["test"] = "filled"
		if err := errors.Join(w.Admin.Create(t.Context(), denied), w.Admin.Create(t.Context(), role), w.Admin.Create(t.Context(), request)); err != nil {
			t.Fatal(err)
		}
		denied.Status.Conditions = []metav1.Condition{{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: ocm.ReasonHubDenied, LastTransitionTime: metav1.Now()}}
		if err := w.Admin.Status().Update(t.Context(), denied); err != nil {
			t.Fatal(err)
		}
	}
	var list struct{ Items []hubadmin.Cluster }
	if err := json.Unmarshal([]byte(must(t, "hub", "status", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	clusters, requests := 0, 0
	for _, c := range list.Items {
		if strings.HasPrefix(c.Name, "filled-") {
			clusters++
			requests += len(c.PendingRequests)
		}
	}
	if clusters != objects || requests != objects {
		t.Errorf("status shows %d clusters and %d requests instead of %d", clusters, requests, objects)
	}
	if out := must(t, "hub", "cleanup", "--older-than=0", "--dry-run"); strings.Count(out, `cluster "filled-`) != objects {
		t.Errorf("cleanup says %s", out)
	}
	config := ocm.ClientConfig{URL: "https://x", CABundle: bytes.Repeat([]byte("x"), 48<<10)}
	large := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "large", Labels: filled},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true, ManagedClusterClientConfigs: slices.Repeat([]ocm.ClientConfig{config}, 16)}}
	if err := w.Admin.Create(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "hub", "deny", "--clusters=large"); !strings.Contains(out, `"large" denied`) {
		t.Errorf("deny says %s", out)
	}
	if _, err := wid(t, "", "hub", "accept", "--clusters=filled-0"); err == nil || !strings.Contains(err.Error(), "90 requests") {
		t.Errorf("accept says %v", err)
	}
}
