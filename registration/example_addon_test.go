package registration_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

func ExampleNewAddOns() {
	var mgr, hub ctrl.Manager     // of the managed cluster, and of the hub in another program
	var agent *registration.Agent // set up with mgr
	var flags registration.AddOnFlags
	flags.BindFlags(pflag.CommandLine)
	pflag.Parse()
	if err := errors.Join(registerAddOns(mgr, agent, flags), serveAddOns(hub)); err != nil {
		fmt.Println(err)
	}
}

// registerAddOns lets an agent register the add-ons of its cluster. It uses the agent's manager.
func registerAddOns(mgr ctrl.Manager, agent *registration.Agent, flags registration.AddOnFlags) error {
	tokens, err := token.New(token.Options{ExpirationSeconds: flags.TokenExpirationSeconds})
	if err != nil {
		return err
	}
	certificates := csr.New(csr.Options{})
	driver, err := registration.Pick([]registration.Driver{certificates, tokens}, flags.KubeClientAuth)
	if err != nil {
		return err
	}
	addOns, err := registration.NewAddOns(registration.AddOnOptions{Agent: agent, KubeClient: driver, CustomSigner: certificates})
	if err != nil {
		return err
	}
	return addOns.SetupWithManager(mgr, 8)
}

// serveAddOns lets a hub serve both drivers. The scheme of the manager has ocm.AddToScheme and addon.AddAllToScheme.
func serveAddOns(mgr ctrl.Manager) error {
	tokens, err := token.NewHub(token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
	if err != nil {
		return err
	}
	approver, err := csr.NewAddOnApprover(csr.AddOnOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
	if err != nil {
		return err
	}
	return errors.Join(tokens.SetupWithManager(mgr, 8), approver.SetupWithManager(mgr))
}

// registerSearch is the part of an add-on's own controller on the hub. It asks for a credential, and binds a role to the users that
// both drivers may give the add-on. It derives them from names: an agent may write any user into the status.
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
	return client.IgnoreAlreadyExists(hub.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "search"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "search"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: cluster, Name: registration.ProposedNames.AddOnServiceAccount(cluster, addOn.Name)},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: registration.AddOnSubject(cluster, addOn.Name, "").Groups[0]},
		},
	}))
}

// signSearch approves and signs a request for the signer example.com/search. The group of the requester proves the cluster. The
// certificate takes nothing but the key from the request.
func signSearch(ctx context.Context, hub client.Client, ca *x509.Certificate, key crypto.Signer, csr *certificatesv1.CertificateSigningRequest) error {
	cluster := csr.Labels[ocm.ClusterNameLabel]
	if csr.Spec.SignerName != "example.com/search" || len(csr.Status.Certificate) > 0 || cluster == "" {
		return nil
	}
	isAgent := slices.ContainsFunc(registration.ClusterGroups(cluster), func(group string) bool { return slices.Contains(csr.Spec.Groups, group) })
	block, _ := pem.Decode(csr.Spec.Request)
	if !isAgent || block == nil {
		return fmt.Errorf("request %q is not one of the agent of cluster %q", csr.Name, cluster)
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	if err := request.CheckSignature(); err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "search:" + cluster},
		NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, request.PublicKey, key)
	if err != nil {
		return err
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Search", Message: "the agent of the cluster asks"})
	if err := hub.SubResource("approval").Update(ctx, csr); err != nil {
		return err
	}
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return hub.Status().Update(ctx, csr)
}

// docs/registration.md shows this file's functions as they are compiled here, and names all reasons and Events.
func TestDocumentationOfAddOns(t *testing.T) {
	code, codeErr := os.ReadFile("example_addon_test.go")
	document, documentErr := os.ReadFile("../docs/registration.md")
	if err := errors.Join(codeErr, documentErr); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"registerAddOns", "serveAddOns", "registerSearch", "signSearch"} {
		_, function, _ := bytes.Cut(code, []byte("\n// "+name+" "))
		function, _, _ = bytes.Cut(function, []byte("\n}\n"))
		if len(function) == 0 || !bytes.Contains(document, slices.Concat([]byte("// "+name+" "), function, []byte("\n}\n"))) {
			t.Errorf("docs/registration.md differs from example_addon_test.go in %s", name)
		}
	}
	for _, reason := range []string{
		registration.ReasonRegistrationAccepted, registration.ReasonDuplicateItem, registration.ReasonUnknownType, registration.ReasonNoSigner,
		registration.ReasonNamespaceRefused, registration.ReasonNamespaceUnusable, registration.ReasonSecretTaken, registration.ReasonInvalidName,
		registration.ReasonUnknownDriver, "RegistrationFailed", "NoAddOns", "AddOnsUnreachable",
		token.ReasonRefreshed, token.ReasonNotDeclared, token.ReasonInfrastructureNotReady, token.ReasonRequestFailed, token.ReasonUnusable,
		"TokenRequestForbidden", "TokenRequestInvalid", "TokenRequestNotFound", "TokenRequestConflict",
		token.ReasonReady, token.ReasonInvalidName, token.ReasonSeveralItems, token.ReasonInvalidSubject, token.ReasonClusterNotAccepted,
		token.ReasonTaken, token.ReasonForbidden, "TokenInfrastructureRemoved",
		"ClientCertificateUpdated", "ClientCertificateNotApproved", "ClientCertificateNotSigned", "ClientCertificateDenied",
		"ClientCertificateFailed", "ClientCertificateUnusable", "NotApproved",
	} {
		if !strings.Contains(string(document), "`"+reason+"`") {
			t.Errorf("docs/registration.md does not explain %s", reason)
		}
	}
}

// The agent accepts the certificate of the signer in the documentation. Another cluster gets none.
func TestExampleSigner(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "search"}, IsCA: true, BasicConstraintsValid: true}
	hub := fake.NewClientBuilder().WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).Build()
	driver := csr.New(csr.Options{})
	in := registration.Input{Now: time.Now(), Cluster: "cluster1", Agent: "agent1", Addon: "search", Hub: hub,
		Item: ocm.Registration{Type: ocm.CustomSigner, SignerName: "example.com/search", Subject: ocm.Subject{User: "search:cluster1"}}}
	next := func() registration.Step {
		t.Helper()
		step, err := driver.Next(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		in.State = step.State
		return step
	}
	next() // the key
	next() // the request
	var list certificatesv1.CertificateSigningRequestList
	if err := hub.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d requests, %v", len(list.Items), err)
	}
	request := &list.Items[0]
	request.Spec.Groups = []string{"system:open-cluster-management:cluster10"}
	if err := signSearch(t.Context(), hub, ca, key, request); err == nil || len(request.Status.Certificate) > 0 {
		t.Errorf("another cluster: %v", err)
	}
	request.Spec.Groups = []string{"system:open-cluster-management:cluster1"}
	if err := signSearch(t.Context(), hub, ca, key, request); err != nil {
		t.Fatal(err)
	}
	if step := next(); step.Credential == nil || len(step.Credential.Files["tls.crt"]) == 0 {
		t.Errorf("the agent has no certificate: %+v", step.Condition)
	}
}

// A role is bound to the users of both drivers before the agent declares anything, and twice does no harm.
func TestExampleController(t *testing.T) {
	addOn := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "search"}}
	hub := fake.NewClientBuilder().WithScheme(addOnScheme(t)).WithObjects(addOn).WithStatusSubresource(addOn).Build()
	for range 2 {
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
			t.Fatal(err)
		}
		if err := registerSearch(t.Context(), hub, addOn); err != nil {
			t.Fatal(err)
		}
	}
	binding := &rbacv1.RoleBinding{}
	if err := hub.Get(t.Context(), client.ObjectKey{Namespace: "cluster1", Name: "search"}, binding); err != nil {
		t.Fatal(err)
	}
	if s := binding.Subjects; s[0].Name != "cluster1-search-agent" || s[1].Name != "system:open-cluster-management:cluster:cluster1:addon:search" {
		t.Errorf("bound to %+v", s)
	}
	if items := addon.StatusOf(addOn).Items; len(items) != 1 || items[0].Type != ocm.KubeClient {
		t.Errorf("items %+v", items)
	}
}
