package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// The reference shows registerSearch as it is compiled, and names all reasons
// and Events.
func TestDocumentationOfAddOns(t *testing.T) {
	page := document.Read(t, "docs/registration-reference.md")
	page.Shows("example_addon_test.go", "// registerSearch is")
	named := document.Names(page.Section("When an add-on gets no credential").Text)
	for _, reason := range []string{
		"RegistrationAccepted", "DuplicateItem", "UnknownType", "NoSigner",
		"NamespaceRefused", "NamespaceUnusable", "SecretTaken", "InvalidName",
		"UnknownDriver", "TooManyItems", "RegistrationFailed", "NoAddOns", "AddOnsUnreachable",
		"AddonTokenRefreshed", "TokenDriverNotDeclared", "TokenInfrastructureNotReady", "TokenRequestFailed", "TokenUnusable",
		"TokenRequestForbidden", "TokenRequestInvalid", "TokenRequestNotFound", "TokenRequestConflict",
		ocm.ReasonTokensReady, "SeveralKubeClientItems", "InvalidSubject", ocm.ReasonClusterNotAccepted,
		"ObjectTaken", ocm.ReasonForbidden, "TokenInfrastructureRemoved",
		"ClientCertificateUpdated", "ClientCertificateNotApproved", "ClientCertificateNotSigned", "ClientCertificateDenied",
		"ClientCertificateFailed", "ClientCertificateUnusable",
	} {
		if !slices.Contains(named, reason) {
			t.Errorf("%s does not explain %s", page.Name, reason)
		}
	}
}

// The documented add-on has the one item that agents take.
func TestDocumentedAddOn(t *testing.T) {
	text := document.Read(t, "docs/registration.md").Section("Add-ons").Block("yaml", "kind: ManagedClusterAddOn")
	addOn := &addon.ManagedClusterAddOn{}
	regtest.Must(t, yaml.UnmarshalStrict([]byte(text), addOn))
	items := addon.StatusOf(addOn).Items
	if addOn.APIVersion != addon.GroupVersion.String() || len(items) != 1 || items[0].Type != ocm.KubeClient {
		t.Errorf("%s has the items %+v", addOn.APIVersion, items)
	}
}

// The agent accepts the certificate of the signer in the documentation, also
// when the first write of it fails. A request without the labels, the group,
// the cluster and the add-on gets none.
func TestExampleSigner(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*searchEnvironment)
		signs  bool
	}{
		"accepted cluster":  {func(*searchEnvironment) {}, true},
		"first write fails": {func(w *searchEnvironment) { w.failures = 1 }, true},
		"another cluster": {func(w *searchEnvironment) {
			w.request.Spec.Groups = []string{"system:open-cluster-management:cluster10"}
		}, false},
		"another add-on":                {func(w *searchEnvironment) { w.request.Labels[addon.NameLabel] = "evil" }, false},
		"no add-on":                     {func(w *searchEnvironment) { delete(w.request.Labels, addon.NameLabel) }, false},
		"deleted add-on":                {func(w *searchEnvironment) { w.remove(w.addOn) }, false},
		"add-on that is being deleted":  {func(w *searchEnvironment) { w.holdAndRemove(w.addOn) }, false},
		"deleted cluster":               {func(w *searchEnvironment) { w.remove(w.cluster) }, false},
		"cluster that is being deleted": {func(w *searchEnvironment) { w.holdAndRemove(w.cluster) }, false},
		"denied cluster": {func(w *searchEnvironment) {
			w.cluster.Spec.HubAcceptsClient = false
			w.must(w.hub.Update(t.Context(), w.cluster))
		}, false},
		"denied request": {(*searchEnvironment).deny, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSearchEnvironment(t)
			c.change(w)
			for range 2 { // a controller reads the request again
				err := w.sign()
				if wants := name == "accepted cluster" || name == "denied request" ||
					name == "first write fails" && w.failures == 0; (err == nil) != wants {
					t.Errorf("error %v", err)
				}
				w.failures = 0
			}
			if signed := len(w.request.Status.Certificate) > 0; signed != c.signs {
				t.Fatalf("signed: %t", signed)
			}
			approved := slices.DeleteFunc(w.request.Status.Conditions,
				func(c certificatesv1.CertificateSigningRequestCondition) bool {
					return c.Type != certificatesv1.CertificateApproved
				})
			if step := w.next(); (step.Credential != nil) != c.signs || (len(approved) == 1) != c.signs {
				t.Errorf("approvals %+v, the agent reports %+v", approved, step.Condition)
			}
		})
	}
}

// searchEnvironment is a hub with a request of the agent of cluster1 for the
// add-on search.
type searchEnvironment struct {
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

func newSearchEnvironment(t *testing.T) *searchEnvironment {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	regtest.Must(t, err)
	w := &searchEnvironment{t: t, key: key,
		ca: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "search"}, IsCA: true,
			BasicConstraintsValid: true},
		cluster: &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"},
			Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}},
		addOn: &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "search"}}}
	w.hub = fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithObjects(w.cluster, w.addOn).
		WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).WithInterceptorFuncs(
		interceptor.Funcs{SubResourceUpdate: w.update}).Build()
	w.in = registration.Input{Now: time.Now(), Cluster: "cluster1", Agent: "agent1", Addon: "search", Hub: w.hub,
		Item: ocm.Registration{Type: ocm.CustomSigner, SignerName: "example.com/search",
			Subject: ocm.Subject{User: "search:cluster1"}}}
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

func (w *searchEnvironment) update(ctx context.Context, c client.Client, name string, o client.Object,
	opts ...client.SubResourceUpdateOption) error {
	if name == "status" && w.failures > 0 {
		return errors.New("the API server fails")
	}
	return c.SubResource(name).Update(ctx, o, opts...)
}

// sign signs the request as the API server has it, with labels and groups as
// they are here.
func (w *searchEnvironment) sign() error {
	labels, groups := w.request.Labels, w.request.Spec.Groups
	w.must(w.hub.Get(w.t.Context(), client.ObjectKeyFromObject(w.request), w.request))
	w.request.Labels, w.request.Spec.Groups = labels, groups
	err := signSearch(w.t.Context(), w.hub, w.ca, w.key, w.request)
	w.must(w.hub.Get(w.t.Context(), client.ObjectKeyFromObject(w.request), w.request))
	w.request.Labels, w.request.Spec.Groups = labels, groups
	return err
}

func (w *searchEnvironment) next() registration.Step {
	w.t.Helper()
	step, err := csr.New(csr.Options{}).Next(w.t.Context(), w.in)
	w.must(err)
	w.in.State = step.State
	return step
}

func (w *searchEnvironment) deny() {
	w.request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
	w.must(w.hub.SubResource("approval").Update(w.t.Context(), w.request))
}

func (w *searchEnvironment) remove(o client.Object) { w.must(w.hub.Delete(w.t.Context(), o)) }

func (w *searchEnvironment) holdAndRemove(o client.Object) {
	o.SetFinalizers([]string{"example.com/hold"})
	w.must(w.hub.Update(w.t.Context(), o))
	w.remove(o)
}

func (w *searchEnvironment) must(err error) {
	w.t.Helper()
	regtest.Must(w.t, err)
}

// A role is bound to the users of both drivers before the agent declares
// anything, and twice does no harm.
func TestExampleController(t *testing.T) {
	addOn := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "search", UID: "1"}}
	hub := fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithObjects(addOn).WithStatusSubresource(addOn).Build()
	for range 2 {
		regtest.Must(t, hub.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn))
		regtest.Must(t, registerSearch(t.Context(), hub, addOn))
	}
	binding := &rbacv1.RoleBinding{}
	regtest.Must(t, hub.Get(t.Context(), client.ObjectKey{Namespace: "cluster1", Name: "search"}, binding))
	if s := binding.Subjects; s[0].Name != "cluster1-search-agent" ||
		s[1].Name != "system:open-cluster-management:cluster:cluster1:addon:search" {
		t.Errorf("bound to %+v", s)
	}
	if o := binding.OwnerReferences; len(o) != 1 || o[0].Kind != "ManagedClusterAddOn" || o[0].Name != "search" ||
		o[0].UID != "1" {
		t.Errorf("owned by %+v: a certificate keeps the rights of a deleted add-on", o)
	}
	if items := addon.StatusOf(addOn).Items; len(items) != 1 || items[0].Type != ocm.KubeClient {
		t.Errorf("items %+v", items)
	}
}
