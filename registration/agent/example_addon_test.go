package agent_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

func ExampleNewAddOns() {
	var mgr, hub ctrl.Manager // of the managed cluster, and of the hub in another program
	var joined *agent.Agent   // set up with mgr
	if err := errors.Join(registerAddOns(mgr, joined, registration.AuthTypeToken), serveAddOns(hub)); err != nil {
		fmt.Println(err)
	}
}

// registerAddOns lets an agent register the add-ons of its cluster, by the auth
// type that a flag of the program names. It uses the agent's manager.
func registerAddOns(mgr ctrl.Manager, joined *agent.Agent, authType string) error {
	tokens, err := token.New(token.Options{})
	if err != nil {
		return err
	}
	certificates := csr.New(csr.Options{})
	driver, err := registration.Pick([]registration.Driver{certificates, tokens}, authType)
	if err != nil {
		return err
	}
	addOns, err := agent.NewAddOns(agent.AddOnOptions{Agent: joined, KubeClient: driver, CustomSigner: certificates})
	if err != nil {
		return err
	}
	return addOns.SetupWithManager(mgr, 8)
}

// serveAddOns lets a hub serve both drivers. The scheme of the manager has
// ocm.AddToScheme and addon.AddToScheme.
func serveAddOns(mgr ctrl.Manager) error {
	tokens, err := token.NewHub(token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
	if err != nil {
		return err
	}
	approver, err := csr.NewAddOnApprover(csr.AddOnApproverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
	if err != nil {
		return err
	}
	return errors.Join(tokens.SetupWithManager(mgr, 8), approver.SetupWithManager(mgr))
}

// registerSearch is the part of an add-on's own controller on the hub. It asks
// for a credential, and binds a role to the users that both drivers may give
// the add-on. It derives them from names: an agent may write any user into the
// status.
func registerSearch(ctx context.Context, hub client.Client, addOn *addon.ManagedClusterAddOn) error {
	err := addon.PatchStatus(ctx, hub, addOn, func(s *addon.Status) bool {
		if len(s.Items) > 0 {
			return false
		}
		s.Items = []ocm.Registration{{Type: ocm.KubeClient}}
		return true
	})
	if err != nil {
		return err
	}
	cluster := addOn.Namespace
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "search"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "search"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: cluster,
				Name: registration.AddOnServiceAccounts(cluster, addOn.Name)[0]},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
				Name: registration.AddOnSubject(cluster, addOn.Name, "").Groups[0]},
		},
	}
	// A certificate outlives its add-on. Without the binding it has no rights.
	if err := controllerutil.SetOwnerReference(addOn, binding, hub.Scheme()); err != nil {
		return err
	}
	return client.IgnoreAlreadyExists(hub.Create(ctx, binding))
}

// signSearch approves and signs a request for the signer example.com/search.
// The certificate takes nothing but the key from the request.
func signSearch(ctx context.Context, hub client.Client, ca *x509.Certificate, key crypto.Signer,
	csr *certificatesv1.CertificateSigningRequest) error {
	is := func(t certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == t
		})
	}
	if csr.Spec.SignerName != "example.com/search" || len(csr.Status.Certificate) > 0 ||
		is(certificatesv1.CertificateDenied) {
		return nil
	}
	cluster := csr.Labels[ocm.ClusterNameLabel]
	if err := checkSearch(ctx, hub, cluster, csr); err != nil {
		return fmt.Errorf("request %q of cluster %q: %w", csr.Name, cluster, err)
	}
	certificate, err := issueSearch(cluster, csr.Spec.Request, ca, key)
	if err != nil {
		return err
	}
	if !is(certificatesv1.CertificateApproved) { // else the last try failed after the approval
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Search",
			Message: "the agent of the cluster asks"})
		if err := hub.SubResource("approval").Update(ctx, csr); err != nil {
			return err
		}
	}
	csr.Status.Certificate = certificate
	return hub.Status().Update(ctx, csr)
}

// checkSearch checks that the agent of an accepted cluster asks for the add-on
// search. The group of the requester proves the cluster. The agent asks for
// whatever signer an item of an add-on names, so another add-on may name this
// signer too.
func checkSearch(ctx context.Context, hub client.Client, cluster string,
	csr *certificatesv1.CertificateSigningRequest) error {
	isAgent := slices.ContainsFunc(registration.ClusterGroups(cluster), func(group string) bool {
		return slices.Contains(csr.Spec.Groups, group)
	})
	if !isAgent || cluster == "" || csr.Labels[addon.NameLabel] != "search" {
		return errors.New("it is not one of the cluster's agent for the add-on search")
	}
	managed, addOn := &ocm.ManagedCluster{}, &addon.ManagedClusterAddOn{}
	if err := hub.Get(ctx, client.ObjectKey{Name: cluster}, managed); err != nil {
		return err
	}
	if err := hub.Get(ctx, client.ObjectKey{Namespace: cluster, Name: "search"}, addOn); err != nil {
		return err
	}
	if !managed.Spec.HubAcceptsClient || !managed.DeletionTimestamp.IsZero() || !addOn.DeletionTimestamp.IsZero() {
		return errors.New("the cluster is not accepted, or the cluster or its add-on is being deleted")
	}
	return nil
}

// issueSearch issues a certificate for the key in a request.
func issueSearch(cluster string, requestPEM []byte, ca *x509.Certificate, key crypto.Signer) ([]byte, error) {
	block, _ := pem.Decode(requestPEM)
	if block == nil {
		return nil, errors.New("the request is no PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if key, ok := request.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > 8192 {
		return nil, errors.New("the RSA key has more than 8192 bits: its signature would take seconds to verify")
	}
	if err := request.CheckSignature(); err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader,
		&x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "search:" + cluster},
			NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(30 * 24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca,
		request.PublicKey, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}
