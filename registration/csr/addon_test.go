package csr_test

import (
	"context"
	"crypto/x509/pkix"
	"reflect"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

const (
	addOnUser  = "system:open-cluster-management:cluster:cluster1:addon:search:agent:agent1"
	addOnGroup = "system:open-cluster-management:cluster:cluster1:addon:search"
	allSearch  = "system:open-cluster-management:addon:search"
)

// Each item gets a certificate with its own subject, by a request that an
// approver can find.
func TestItemsOfAddOns(t *testing.T) {
	standard := ocm.Subject{User: addOnUser, Groups: []string{addOnGroup, allSearch}}
	custom := ocm.Subject{User: "u", Groups: []string{"g"}, OrganizationUnits: []string{"o1", "o2"}}
	kube, other := "kubernetes.io/kube-apiserver-client", "example.com/signer"
	for name, c := range map[string]struct {
		item    ocm.Registration
		declare *ocm.Registration
		signer  string
		subject ocm.Subject
	}{
		"empty kubeClient item": {ocm.Registration{Type: ocm.KubeClient},
			&ocm.Registration{Type: ocm.KubeClient, Driver: "csr", Subject: standard}, kube, standard},
		"kubeClient item of the token driver": {ocm.Registration{Type: ocm.KubeClient, Driver: "token",
			Subject: ocm.Subject{User: "system:serviceaccount:cluster1:a"}},
			&ocm.Registration{Type: ocm.KubeClient, Driver: "csr", Subject: standard}, kube, standard},
		"declared kubeClient item": {ocm.Registration{Type: ocm.KubeClient, Driver: "csr", Subject: standard}, nil, kube,
			standard},
		"kubeClient item whose subject the hub chose": {ocm.Registration{Type: ocm.KubeClient,
			Subject: ocm.Subject{User: "u", Groups: []string{"g"}}},
			&ocm.Registration{Type: ocm.KubeClient, Driver: "csr", Subject: ocm.Subject{User: "u", Groups: []string{"g"}}}, kube,
			ocm.Subject{User: "u", Groups: []string{"g"}}},
		"customSigner item": {ocm.Registration{Type: ocm.CustomSigner, SignerName: other, Subject: custom},
			nil, other, custom},
		"customSigner item without a subject": {ocm.Registration{Type: ocm.CustomSigner, SignerName: other}, nil, other,
			standard},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.sign, w.addOn, w.item = true, "search", c.item
			if step := w.step(); !reflect.DeepEqual(step.Declare, c.declare) {
				t.Errorf("declares %+v", step.Declare)
			}
			w.step() // makes the request, which is signed at once
			step := w.step()
			expect(t, step, metav1.ConditionTrue, "ClientCertificateUpdated")
			w.expectRequests(1)
			request, leaf := w.request(), w.leaf()
			if !strings.HasPrefix(request.Name, "addon-cluster1-search-") || request.Spec.SignerName != c.signer ||
				request.Labels["open-cluster-management.io/addon-name"] != "search" ||
				request.Labels["open-cluster-management.io/cluster-name"] != "cluster1" {
				t.Errorf("request %s, signer %s, labels %v", request.Name, request.Spec.SignerName, request.Labels)
			}
			slices.Sort(leaf.Subject.Organization)
			c.subject.Groups = slices.Sorted(slices.Values(c.subject.Groups))
			if got := (ocm.Subject{User: leaf.Subject.CommonName, Groups: leaf.Subject.Organization,
				OrganizationUnits: leaf.Subject.OrganizationalUnit}); !reflect.DeepEqual(got, c.subject) {
				t.Errorf("the certificate says %+v", got)
			}
		})
	}
}

// An item whose subject changes gets another certificate.
func TestItemGetsAnotherSubject(t *testing.T) {
	w := newEnvironment(t)
	w.sign, w.addOn, w.item = true, "search",
		ocm.Registration{Type: ocm.CustomSigner, SignerName: "example.com/signer",
			Subject: ocm.Subject{User: "u", OrganizationUnits: []string{"o1"}}}
	for range 3 {
		w.step()
	}
	w.item.Subject.OrganizationUnits = []string{"o2"}
	for range 3 {
		w.step()
	}
	w.expectRequests(2)
	if got := w.leaf().Subject.OrganizationalUnit; !slices.Equal(got, []string{"o2"}) {
		t.Errorf("the certificate says %q", got)
	}
}

// approver is an AddOnApprover over a fake API server.
type approver struct {
	client client.Client
	events *events.FakeRecorder
	*csr.AddOnApprover
}

func newApprover(t testing.TB, version schema.GroupVersion, objects ...client.Object) *approver {
	t.Helper()
	a := &approver{events: events.NewFakeRecorder(10)}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(version.WithKind("ManagedClusterAddOn"), meta.RESTScopeNamespace)
	a.client = fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithRESTMapper(mapper).WithObjects(objects...).
		WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, part string,
			obj client.Object, opts ...client.SubResourceUpdateOption) error {
			if part != "approval" {
				t.Errorf("writes %s", part)
			}
			return c.Status().Update(ctx, obj, opts...)
		}}).Build()
	var err error
	if a.AddOnApprover,
		err = csr.NewAddOnApprover(csr.AddOnApproverOptions{Client: a.client, Reader: a.client,
		Events: a.events}); err != nil {
		t.Fatal(err)
	}
	return a
}

// reconcile reports whether the request is approved now, the last event, and
// whether the request is checked again.
func (a *approver) reconcile(t testing.TB) (approved bool, event string, again bool) {
	t.Helper()
	result, err := a.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "csr1"}})
	regtest.Must(t, err)
	c := &certificatesv1.CertificateSigningRequest{}
	regtest.Must(t, a.client.Get(t.Context(), client.ObjectKey{Name: "csr1"}, c))
	if len(a.events.Events) > 0 {
		event = <-a.events.Events
	}
	return len(c.Status.Conditions) > 0, event, result.RequeueAfter > 0
}

func searchAddOn(items ...ocm.Registration) *addon.ManagedClusterAddOn {
	a := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "search"}}
	a.Status.SetItems(items)
	return a
}

func TestAddOnApprover(t *testing.T) {
	declared := ocm.Registration{Type: ocm.KubeClient, Driver: "csr",
		Subject: ocm.Subject{User: addOnUser, Groups: []string{addOnGroup, allSearch}}}
	undeclared, byToken, masters, otherAgent := ocm.Registration{Type: ocm.KubeClient}, declared, declared, declared
	byToken.Driver = "token"
	masters.Subject = ocm.Subject{User: "admin", Groups: []string{"system:masters"}}
	otherAgent.Subject.User = addOnUser + "2"
	signer := ocm.Registration{Type: ocm.CustomSigner, SignerName: "example.com/signer"}
	right := pkix.Name{CommonName: addOnUser, Organization: []string{allSearch, addOnGroup}}
	with := func(change func(*pkix.Name)) pkix.Name {
		n := right
		n.Organization = slices.Clone(right.Organization)
		change(&n)
		return n
	}
	own, denied, deleted := accepted("cluster1"), accepted("cluster1"), searchAddOn(declared)
	denied.Spec.HubAcceptsClient = false
	deleted.Finalizers, deleted.DeletionTimestamp = []string{"f"}, &metav1.Time{Time: start}
	groups, eks := []string{"system:open-cluster-management:cluster1", "system:authenticated"},
		[]string{"open-cluster-management:cluster1"}
	for name, c := range map[string]struct {
		subject pkix.Name
		groups  []string
		cluster *ocm.ManagedCluster
		addOn   *addon.ManagedClusterAddOn
		want    string // of the event; "" means approved
		final   bool
	}{
		"declared item":                   {right, groups, own, searchAddOn(declared), "", false},
		"agent that authenticates by AWS": {right, eks, own, searchAddOn(declared), "", false},
		"beside a customSigner item":      {right, groups, own, searchAddOn(signer, declared), "", false},
		"item that is not declared yet":   {right, groups, own, searchAddOn(undeclared), "", false},
		"item of the token driver": {right, groups, own, searchAddOn(byToken),
			"OtherDriver the kubeClient item", false},
		"item of another agent": {right, groups, own, searchAddOn(otherAgent),
			"SubjectMismatch the kubeClient item", false},
		"customSigner item alone": {right, groups, own, searchAddOn(signer),
			"NotOneKubeClientItem the add-on \"cluster1/search\" has 0", false},
		"two kubeClient items": {right, groups, own, searchAddOn(declared, declared),
			"NotOneKubeClientItem the add-on \"cluster1/search\" has 2", false},
		"no add-on":                    {right, groups, own, nil, "NoAddOn there is no add-on", false},
		"add-on that is being deleted": {right, groups, own, deleted, "NoAddOn there is no add-on", false},
		"cluster that is denied": {right, groups, denied, searchAddOn(declared),
			"NotAccepted the hub has not accepted", false},
		"no cluster": {right, groups, nil, searchAddOn(declared),
			"NotAccepted the hub has not accepted", false},
		"item that the agent set to an admin": {pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
			groups, own, searchAddOn(masters), "SubjectNotDefault the common name", true},
		"one organization too many": {with(func(n *pkix.Name) {
			n.Organization = append(n.Organization, "system:masters")
		}), groups, own, searchAddOn(declared), "SubjectNotDefault the subject", true},
		"organizational unit": {with(func(n *pkix.Name) {
			n.OrganizationalUnit = []string{"o"}
		}), groups, own, searchAddOn(declared), "SubjectNotDefault the subject", true},
		"one organization too few": {with(func(n *pkix.Name) {
			n.Organization = n.Organization[1:]
		}), groups, own, searchAddOn(declared), "SubjectMismatch the kubeClient item", false},
		"subject of another cluster's add-on": {with(func(n *pkix.Name) {
			n.CommonName = strings.Replace(addOnUser, "cluster1", "cluster10", 1)
		}), groups, own, searchAddOn(declared), "SubjectNotDefault the common name", true},
		"subject of the cluster's agent": {subject("cluster1", "agent1"), groups, own, searchAddOn(declared),
			"SubjectNotDefault the common name", true},
		"another cluster's agent asks": {right, []string{"system:open-cluster-management:cluster10"}, own,
			searchAddOn(declared), "UnknownRequester the user", true},
		"a user without a group of a cluster": {right, []string{"system:authenticated"}, own, searchAddOn(declared),
			"UnknownRequester the user", true},
		"the shared group of all agents": {right, []string{"system:open-cluster-management:managed-clusters"}, own,
			searchAddOn(declared), "UnknownRequester the user", true},
		"agent whose name is no DNS label": {with(func(n *pkix.Name) {
			n.CommonName += ":x"
		}), groups, own, searchAddOn(declared), "SubjectNotDefault the common name", true},
	} {
		for version, gv := range map[string]schema.GroupVersion{"v1alpha1": v1alpha1.GroupVersion,
			"v1beta1": addon.GroupVersion} {
			t.Run(name+" "+version, func(t *testing.T) {
				request := from(asks(t, "cluster1", c.subject, ecKey(t)), "u", c.groups...)
				request.Labels[addon.NameLabel] = "search"
				objects := []client.Object{request}
				if c.cluster != nil {
					objects = append(objects, c.cluster)
				}
				switch {
				case c.addOn != nil && version == "v1alpha1":
					older := &v1alpha1.ManagedClusterAddOn{ObjectMeta: c.addOn.ObjectMeta}
					older.Status.SetItems(c.addOn.Status.Items())
					objects = append(objects, older)
				case c.addOn != nil:
					objects = append(objects, c.addOn)
				}
				approved, event, again := newApprover(t, gv, objects...).reconcile(t)
				if approved != (c.want == "") || !strings.Contains(event, c.want) || again != (c.want != "" && !c.final) {
					t.Errorf("approved %t, checked again %t: %s", approved, again, event)
				}
			})
		}
	}
}

// The key is bounded before the signature is verified, which is wrong here.
func TestAddOnApproverRefusesAHugeKey(t *testing.T) {
	request := from(labeled("cluster1", huge(t, 32768)), "u", "system:open-cluster-management:cluster1")
	request.Labels[addon.NameLabel] = "search"
	approved, event, again := newApprover(t, addon.GroupVersion, request, accepted("cluster1")).reconcile(t)
	if approved || again || !strings.Contains(event, "8192 bits") {
		t.Errorf("approved %t, checked again %t: %s", approved, again, event)
	}
}

// The approvers of clusters and of add-ons leave each other's requests alone.
func TestApproversShareNoRequests(t *testing.T) {
	own := from(asks(t, "cluster1", subject("cluster1", "agent1"), ecKey(t)), bootstrapUser)
	a := newApprover(t, addon.GroupVersion, own, accepted("cluster1"))
	if approved, event, _ := a.reconcile(t); approved || event != "" {
		t.Errorf("the approver of add-ons checked a cluster: %s", event)
	}
	own.ResourceVersion, own.Labels[addon.NameLabel] = "", "search"
	h := newHub(t, own, accepted("cluster1"), record("cluster1", "csr"))
	if approved, _ := h.reconcile(t); approved || h.event() != "" {
		t.Error("the approver of clusters checked an add-on")
	}
}

func TestAddOnApproverOnAHubWithoutAddOns(t *testing.T) {
	request := from(asks(t, "cluster1", pkix.Name{CommonName: addOnUser, Organization: []string{addOnGroup, allSearch}},
		ecKey(t)), "u", "system:open-cluster-management:cluster1")
	request.Labels[addon.NameLabel] = "search"
	a := newApprover(t, schema.GroupVersion{Group: "example.com", Version: "v1"}, request, accepted("cluster1"))
	if approved, event, again := a.reconcile(t); approved || !again ||
		!strings.Contains(event, "AddOnsNotServed the hub has no API of add-ons") {
		t.Errorf("approved %t, checked again %t: %s", approved, again, event)
	}
}
