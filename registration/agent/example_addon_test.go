package agent_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
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

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/regname"
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

// registerAddOns lets an agent register the add-ons of its cluster, by the auth type that a flag of the program names. It uses the agent's
// manager.
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

// serveAddOns lets a hub serve both drivers. The scheme of the manager has ocm.AddToScheme and addon.AddToScheme.
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
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "search"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "search"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: cluster, Name: registration.AddOnServiceAccounts(cluster, addOn.Name)[0]},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: registration.AddOnSubject(cluster, addOn.Name, "").Groups[0]},
		},
	}
	// A certificate outlives its add-on. Without the binding it has no rights.
	if err := controllerutil.SetOwnerReference(addOn, binding, hub.Scheme()); err != nil {
		return err
	}
	return client.IgnoreAlreadyExists(hub.Create(ctx, binding))
}

// signSearch approves and signs a request for the signer example.com/search. The certificate takes nothing but the key from the request.
func signSearch(ctx context.Context, hub client.Client, ca *x509.Certificate, key crypto.Signer, csr *certificatesv1.CertificateSigningRequest) error {
	is := func(t certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
	}
	if csr.Spec.SignerName != "example.com/search" || len(csr.Status.Certificate) > 0 || is(certificatesv1.CertificateDenied) {
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
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Search", Message: "the agent of the cluster asks"})
		if err := hub.SubResource("approval").Update(ctx, csr); err != nil {
			return err
		}
	}
	csr.Status.Certificate = certificate
	return hub.Status().Update(ctx, csr)
}

// checkSearch checks that the agent of an accepted cluster asks for the add-on search. The group of the requester proves the cluster. The
// agent asks for whatever signer an item of an add-on names, so another add-on may name this signer too.
func checkSearch(ctx context.Context, hub client.Client, cluster string, csr *certificatesv1.CertificateSigningRequest) error {
	isAgent := slices.ContainsFunc(registration.ClusterGroups(cluster), func(group string) bool { return slices.Contains(csr.Spec.Groups, group) })
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
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "search:" + cluster},
		NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, request.PublicKey, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// docs/registration.md shows functions of this file as they are compiled here, links to the others, and names all reasons and Events.
func TestDocumentationOfAddOns(t *testing.T) {
	code, codeErr := os.ReadFile("example_addon_test.go")
	document, documentErr := os.ReadFile("../../docs/registration.md")
	if err := errors.Join(codeErr, documentErr); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"registerAddOns", "serveAddOns", "registerSearch"} {
		_, function, _ := bytes.Cut(code, []byte("\n// "+name+" "))
		function, _, _ = bytes.Cut(function, []byte("\n}\n"))
		if len(function) == 0 || !bytes.Contains(document, slices.Concat([]byte("// "+name+" "), function, []byte("\n}\n"))) {
			t.Errorf("docs/registration.md differs from example_addon_test.go in %s", name)
		}
	}
	for name, folder := range map[string]string{"example_addon_test.go": "agent/", "example_driver_test.go": ""} { // with signSearch and ServiceAccountDriver
		if !bytes.Contains(document, []byte("[`"+name+"`](../registration/"+folder+name+")")) {
			t.Errorf("docs/registration.md does not link to %s", name)
		}
	}
	for _, reason := range []string{
		"RegistrationAccepted", "DuplicateItem", "UnknownType", "NoSigner",
		"NamespaceRefused", "NamespaceUnusable", "SecretTaken", "InvalidName",
		"UnknownDriver", "TooManyItems", "RegistrationFailed", "NoAddOns", "AddOnsUnreachable",
		"AddonTokenRefreshed", "TokenDriverNotDeclared", "TokenInfrastructureNotReady", "TokenRequestFailed", "TokenUnusable",
		"TokenRequestForbidden", "TokenRequestInvalid", "TokenRequestNotFound", "TokenRequestConflict",
		regname.ReasonTokensReady, "InvalidName", "SeveralKubeClientItems", "InvalidSubject", regname.ReasonClusterNotAccepted,
		"ObjectTaken", regname.ReasonForbidden, "TokenInfrastructureRemoved",
		"ClientCertificateUpdated", "ClientCertificateNotApproved", "ClientCertificateNotSigned", "ClientCertificateDenied",
		"ClientCertificateFailed", "ClientCertificateUnusable",
	} {
		if !strings.Contains(string(document), "`"+reason+"`") {
			t.Errorf("docs/registration.md does not explain %s", reason)
		}
	}
}

// The add-on in docs/registration.md has the one item that agents take.
func TestDocumentedAddOn(t *testing.T) {
	document, err := os.ReadFile("../../docs/registration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(document), "```yaml\napiVersion: addon.")
	text, _, _ = strings.Cut("apiVersion: addon."+text, "```")
	addOn := &addon.ManagedClusterAddOn{}
	if err := yaml.UnmarshalStrict([]byte(text), addOn); err != nil {
		t.Fatal(err)
	}
	items := addon.StatusOf(addOn).Items
	if addOn.APIVersion != addon.GroupVersion.String() || addOn.Kind != "ManagedClusterAddOn" || len(items) != 1 || items[0].Type != ocm.KubeClient {
		t.Errorf("%s %s has the items %+v", addOn.APIVersion, addOn.Kind, items)
	}
}

// The agent accepts the certificate of the signer in the documentation, also when the first write of it fails. A request without the
// labels, the group, the cluster and the add-on gets none.
func TestExampleSigner(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*searchWorld)
		signs  bool
	}{
		"accepted cluster":              {func(*searchWorld) {}, true},
		"first write fails":             {func(w *searchWorld) { w.failures = 1 }, true},
		"another cluster":               {func(w *searchWorld) { w.request.Spec.Groups = []string{"system:open-cluster-management:cluster10"} }, false},
		"another add-on":                {func(w *searchWorld) { w.request.Labels[addon.NameLabel] = "evil" }, false},
		"no add-on":                     {func(w *searchWorld) { delete(w.request.Labels, addon.NameLabel) }, false},
		"deleted add-on":                {func(w *searchWorld) { w.remove(w.addOn) }, false},
		"add-on that is being deleted":  {func(w *searchWorld) { w.holdAndRemove(w.addOn) }, false},
		"deleted cluster":               {func(w *searchWorld) { w.remove(w.cluster) }, false},
		"cluster that is being deleted": {func(w *searchWorld) { w.holdAndRemove(w.cluster) }, false},
		"denied cluster": {func(w *searchWorld) {
			w.cluster.Spec.HubAcceptsClient = false
			w.must(w.hub.Update(t.Context(), w.cluster))
		}, false},
		"denied request": {(*searchWorld).deny, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSearchWorld(t)
			c.change(w)
			for range 2 { // a controller reads the request again
				err := w.sign()
				if wants := name == "accepted cluster" || name == "denied request" || name == "first write fails" && w.failures == 0; (err == nil) != wants {
					t.Errorf("error %v", err)
				}
				w.failures = 0
			}
			if signed := len(w.request.Status.Certificate) > 0; signed != c.signs {
				t.Fatalf("signed: %t", signed)
			}
			approved := slices.DeleteFunc(w.request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
				return c.Type != certificatesv1.CertificateApproved
			})
			if step := w.next(); (step.Credential != nil) != c.signs || (len(approved) == 1) != c.signs {
				t.Errorf("approvals %+v, the agent reports %+v", approved, step.Condition)
			}
		})
	}
}

// searchWorld is a hub with a request of the agent of cluster1 for the add-on search.
type searchWorld struct {
	t        *testing.T
	hub      client.Client
	ca       *x509.Certificate
	key      *ecdsa.PrivateKey
	in       registration.Input
	cluster  *ocm.ManagedCluster
	addOn    *addon.ManagedClusterAddOn
	request  *certificatesv1.CertificateSigningRequest
	failures int // of the next writes of a certificate
}

func newSearchWorld(t *testing.T) *searchWorld {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := &searchWorld{t: t, key: key,
		ca:      &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "search"}, IsCA: true, BasicConstraintsValid: true},
		cluster: &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}, Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}},
		addOn:   &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "search"}}}
	w.hub = fake.NewClientBuilder().WithScheme(addOnScheme(t)).WithObjects(w.cluster, w.addOn).
		WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: w.update}).Build()
	w.in = registration.Input{Now: time.Now(), Cluster: "cluster1", Agent: "agent1", Addon: "search", Hub: w.hub,
		Item: ocm.Registration{Type: ocm.CustomSigner, SignerName: "example.com/search", Subject: ocm.Subject{User: "search:cluster1"}}}
	w.next() // the key
	w.next() // the request
	var list certificatesv1.CertificateSigningRequestList
	w.must(w.hub.List(t.Context(), &list))
	if len(list.Items) != 1 {
		t.Fatalf("%d requests", len(list.Items))
	}
	w.request = &list.Items[0]
	w.request.Spec.Groups = []string{"system:open-cluster-management:cluster1"} // the API server writes it
	return w
}

func (w *searchWorld) update(ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if name == "status" && w.failures > 0 {
		return errors.New("the API server fails")
	}
	return c.SubResource(name).Update(ctx, o, opts...)
}

// sign signs the request as the API server has it, with labels and groups as they are here.
func (w *searchWorld) sign() error {
	labels, groups := w.request.Labels, w.request.Spec.Groups
	w.must(w.hub.Get(w.t.Context(), client.ObjectKeyFromObject(w.request), w.request))
	w.request.Labels, w.request.Spec.Groups = labels, groups
	err := signSearch(w.t.Context(), w.hub, w.ca, w.key, w.request)
	w.must(w.hub.Get(w.t.Context(), client.ObjectKeyFromObject(w.request), w.request))
	w.request.Labels, w.request.Spec.Groups = labels, groups
	return err
}

func (w *searchWorld) next() registration.Step {
	w.t.Helper()
	step, err := csr.New(csr.Options{}).Next(w.t.Context(), w.in)
	w.must(err)
	w.in.State = step.State
	return step
}

func (w *searchWorld) deny() {
	w.request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
	w.must(w.hub.SubResource("approval").Update(w.t.Context(), w.request))
}

func (w *searchWorld) remove(o client.Object) { w.must(w.hub.Delete(w.t.Context(), o)) }

func (w *searchWorld) holdAndRemove(o client.Object) {
	o.SetFinalizers([]string{"example.com/hold"})
	w.must(w.hub.Update(w.t.Context(), o))
	w.remove(o)
}

func (w *searchWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// A role is bound to the users of both drivers before the agent declares anything, and twice does no harm.
func TestExampleController(t *testing.T) {
	addOn := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "search", UID: "1"}}
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
	if o := binding.OwnerReferences; len(o) != 1 || o[0].Kind != "ManagedClusterAddOn" || o[0].Name != "search" || o[0].UID != "1" {
		t.Errorf("owned by %+v: a certificate keeps the rights of a deleted add-on", o)
	}
	if items := addon.StatusOf(addOn).Items; len(items) != 1 || items[0].Type != ocm.KubeClient {
		t.Errorf("items %+v", items)
	}
}
