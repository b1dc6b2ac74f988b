package csr_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// ocmAgent makes the requests that a released agent of Open Cluster Management makes.
type ocmAgent struct {
	k       *kube
	cluster string
	hub     client.Client
}

// ask creates a request under a generated name, and returns that name.
func (a *ocmAgent) ask(addOn string, template x509.CertificateRequest, key *ecdsa.PrivateKey) string {
	a.k.T.Helper()
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: a.cluster + "-", Labels: map[string]string{ocm.ClusterNameLabel: a.cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: encode(a.k.T, &template, key), SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth}}}
	if addOn != "" {
		request.GenerateName, request.Labels[addon.NameLabel] = "addon-"+a.cluster+"-"+addOn+"-", addOn
	}
	if err := a.hub.Create(a.k.T.Context(), request); err != nil {
		a.k.T.Fatal(err)
	}
	return request.Name
}

// askForItself asks for the certificate of an agent of the cluster.
func (a *ocmAgent) askForItself(agent string, key *ecdsa.PrivateKey) string {
	a.k.T.Helper()
	return a.ask("", x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:open-cluster-management:" + a.cluster + ":" + agent,
		Organization: []string{"system:open-cluster-management:" + a.cluster, "system:open-cluster-management:managed-clusters"}}}, key)
}

// signed waits for the certificate of a request, and returns it with a client that uses it.
func (a *ocmAgent) signed(request string, key *ecdsa.PrivateKey) (*x509.Certificate, client.Client) {
	a.k.T.Helper()
	r := &certificatesv1.CertificateSigningRequest{}
	regtest.Eventually(a.k.T, "the certificate of "+request, func() bool {
		return a.k.Admin.Get(a.k.T.Context(), client.ObjectKey{Name: request}, r) == nil && len(r.Status.Certificate) > 0
	})
	block, _ := pem.Decode(r.Status.Certificate)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		a.k.T.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.k.T.Fatal(err)
	}
	config := rest.AnonymousClientConfig(a.k.Hub.Config())
	config.CertData, config.KeyData = r.Status.Certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return leaf, regtest.NewClient(a.k.T, config)
}

// An agent of Open Cluster Management joins, renews and registers an add-on with a certificate, by its own requests.
func TestOCMsAgentGetsCertificates(t *testing.T) {
	k := newKube(t)
	k.Apply(k.Admin, addon.CRD)
	a := &ocmAgent{k: k, cluster: "ocm", hub: k.user("system:bootstrap:ocm000", registration.BootstrapGroup)}
	if err := a.hub.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "ocm"}}); err != nil {
		t.Fatal(err)
	}
	first, second, third := ecKey(t), ecKey(t), ecKey(t)
	request := a.askForItself("x7k2p", first)
	k.expectRefused(request, "NotAccepted")
	k.SetAccepted("ocm", true)
	_, a.hub = a.signed(request, first)
	if user := regtest.UserOf(t, a.hub); user.Username != "system:open-cluster-management:ocm:x7k2p" || !slices.Contains(user.Groups, regname.ManagedClustersGroup) {
		t.Errorf("the hub sees %+v", user)
	}
	k.Step("renews with another key", func(*testing.T) {
		_, a.hub = a.signed(a.askForItself("x7k2p", second), second)
	})
	k.Step("registers an add-on", func(t *testing.T) {
		k.newAddOn("ocm", "search", ocm.Registration{Type: ocm.KubeClient})
		own := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "ocm", Name: "search"}}
		driver := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"registrations":[{"type":"kubeClient","kubeClient":{"driver":"csr","subject":{"user":""}}}]}}`))
		if err := a.hub.Status().Patch(t.Context(), own, driver); err != nil {
			t.Fatal(err)
		}
		const group = "system:open-cluster-management:cluster:ocm:addon:search"
		leaf, search := a.signed(a.ask("search", x509.CertificateRequest{Subject: pkix.Name{CommonName: group + ":agent:search", Organization: []string{group}},
			DNSNames: []string{ocmAddOnHost}}, third), third)
		if !slices.Equal(leaf.DNSNames, []string{ocmAddOnHost}) || !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
			t.Errorf("the certificate has %q for %v", leaf.DNSNames, leaf.ExtKeyUsage)
		}
		if user := regtest.UserOf(t, search); user.Username != group+":agent:search" || !slices.Contains(user.Groups, group) {
			t.Errorf("the hub sees %+v", user)
		}
	})
	k.Step("and gets no more names", func(*testing.T) {
		template := x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:open-cluster-management:ocm:x7k2p", Organization: []string{"system:open-cluster-management:ocm"}},
			DNSNames: []string{ocmAddOnHost}}
		k.expectRefused(a.ask("", template, third), "InvalidRequest")
	})
	k.Step("until another agent is recorded", func(t *testing.T) {
		role := k.role("ocm")
		role.Annotations[agentAnnotation] = "another"
		if err := k.Admin.Update(t.Context(), role); err != nil {
			t.Fatal(err)
		}
		const group = "system:open-cluster-management:cluster:ocm:addon:search"
		template := x509.CertificateRequest{Subject: pkix.Name{CommonName: group + ":agent:search", Organization: []string{group}}, DNSNames: []string{ocmAddOnHost}}
		k.expectRefused(a.ask("search", template, third), "AnotherAgent")
	})
}
