package csr_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	bootstrapUser  = "system:serviceaccount:hub:bootstrap"
	bootstrapGroup = "system:bootstrappers:managedcluster"
	autoUser       = "system:serviceaccount:hub:auto"
)

// subject returns what an agent's certificate says.
func subject(cluster, agent string, more ...string) pkix.Name {
	return pkix.Name{CommonName: "system:open-cluster-management:" + cluster + ":" + agent,
		Organization: append([]string{"system:open-cluster-management:" + cluster,
			"system:open-cluster-management:managed-clusters"}, more...)}
}

// asks returns a well-formed request for a cluster's certificate.
func asks(t testing.TB, cluster string, subject pkix.Name,
	key crypto.Signer) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return labeled(cluster, encode(t, &x509.CertificateRequest{Subject: subject}, key))
}

func encode(t testing.TB, template *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	regtest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func labeled(cluster string, request []byte) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr1", CreationTimestamp: metav1.NewTime(start),
			Labels: map[string]string{"open-cluster-management.io/cluster-name": cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: request,
			SignerName: "kubernetes.io/kube-apiserver-client",
			Usages:     []certificatesv1.KeyUsage{"digital signature", "client auth"}},
	}
}

func TestParseRequest(t *testing.T) {
	key := ecKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	regtest.Must(t, err)
	t.Setenv("GODEBUG", "rsa1024min=0")
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	regtest.Must(t, err)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	regtest.Must(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	regtest.Must(t, err)
	good := asks(t, "cluster1", subject("cluster1", "agent1"), key)
	spec := func(change func(*certificatesv1.CertificateSigningRequestSpec)) *certificatesv1.CertificateSigningRequest {
		c := good.DeepCopy()
		change(&c.Spec)
		return c
	}
	usages := func(u ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
		return spec(func(s *certificatesv1.CertificateSigningRequestSpec) { s.Usages = u })
	}
	body := func(b []byte) *certificatesv1.CertificateSigningRequest {
		return spec(func(s *certificatesv1.CertificateSigningRequestSpec) { s.Request = b })
	}
	withUnit := subject("cluster1", "agent1")
	withUnit.OrganizationalUnit = []string{"unit"}
	twoNames := subject("cluster1", "agent1")
	twoNames.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "admin"},
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: twoNames.CommonName}}
	only := func(organizations ...string) pkix.Name {
		return pkix.Name{CommonName: subject("cluster1", "agent1").CommonName, Organization: organizations}
	}
	forged, _ := pem.Decode(good.Spec.Request)
	forged.Bytes[len(forged.Bytes)-1] ^= 1
	for name, c := range map[string]struct {
		csr  *certificatesv1.CertificateSigningRequest
		want string // "" means accepted
	}{
		"ours": {good, ""},
		"an agent of Open Cluster Management, which asks for key encipherment": {usages("digital signature",
			"key encipherment", "client auth"), ""},
		"RSA":                         {asks(t, "cluster1", subject("cluster1", "agent1"), rsaKey), ""},
		"cluster1 asks for cluster10": {asks(t, "cluster1", subject("cluster10", "agent1"), key), "no agent of cluster"},
		"cluster10 asks for cluster1": {asks(t, "cluster10", subject("cluster1", "agent1"), key), "no agent of cluster"},
		"groups of cluster10": {
			asks(t, "cluster1", pkix.Name{CommonName: subject("cluster1", "agent1").CommonName,
				Organization: subject("cluster10", "x").Organization}, key), "exactly"},
		"groups of cluster1": {
			asks(t, "cluster10", pkix.Name{CommonName: subject("cluster10", "agent1").CommonName,
				Organization: subject("cluster1", "x").Organization}, key), "exactly"},
		"one organization too many": {asks(t, "cluster1", subject("cluster1", "agent1", "system:masters"), key),
			"system:masters"},
		"an organization twice": {
			asks(t, "cluster1", subject("cluster1", "agent1", "system:open-cluster-management:cluster1"), key), "exactly"},
		"without the common group": {asks(t, "cluster1", only("system:open-cluster-management:cluster1"), key), ""},
		"the common group alone": {asks(t, "cluster1", only("system:open-cluster-management:managed-clusters"), key),
			"exactly"},
		"no organization": {asks(t, "cluster1", only(), key), "exactly"},
		"the common group twice": {
			asks(t, "cluster1", only("system:open-cluster-management:managed-clusters",
				"system:open-cluster-management:managed-clusters"), key), "exactly"},
		"another common group": {asks(t, "cluster1", only("system:open-cluster-management:cluster1", "system:masters"),
			key), "exactly"},
		"an organizational unit":   {asks(t, "cluster1", withUnit, key), "exactly"},
		"two common names":         {asks(t, "cluster1", twoNames, key), "exactly"},
		"no agent":                 {asks(t, "cluster1", subject("cluster1", ""), key), "agent name"},
		"an agent of two parts":    {asks(t, "cluster1", subject("cluster1", "a:b"), key), "agent name"},
		"an add-on's agent":        {asks(t, "cluster", subject("cluster", "cluster1:addon:a:agent:b"), key), "reserved"},
		"no label":                 {labeled("", good.Spec.Request), "label"},
		"cluster managed-clusters": {asks(t, "managed-clusters", subject("managed-clusters", "agent1"), key), "reserved"},
		"cluster kube-system":      {asks(t, "kube-system", subject("kube-system", "agent1"), key), "reserved"},
		"cluster a.b":              {asks(t, "a.b", subject("a.b", "agent1"), key), "DNS label"},
		"cluster of two parts":     {asks(t, "a:b", subject("a:b", "agent1"), key), "DNS label"},
		"another signer": {spec(func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = "kubernetes.io/kubelet-serving"
		}), "kubelet-serving"},
		"server usage":        {usages("digital signature", "client auth", "server auth"), "server auth"},
		"CA usage":            {usages("digital signature", "client auth", "cert sign"), "cert sign"},
		"no client usage":     {usages("digital signature"), "usages"},
		"no usage":            {usages(), "usages"},
		"weak RSA":            {asks(t, "cluster1", subject("cluster1", "agent1"), weak), "key of type"},
		"weak EC":             {asks(t, "cluster1", subject("cluster1", "agent1"), p224), "key of type"},
		"RSA with 8193 bits":  {body(huge(t, 8193)), "8192"},
		"RSA with 32768 bits": {body(huge(t, 32768)), "8192"},
		"RSA with 65536 bits": {body(huge(t, 65536)), "16384 bytes"},
		"a body of 17 KiB": {body(slices.Concat(bytes.Repeat([]byte("junk\n"), 3400), good.Spec.Request)),
			"16384 bytes"},
		"another kind of key": {asks(t, "cluster1", subject("cluster1", "agent1"), edwards), "key of type"},
		"alternative names": {
			labeled("cluster1",
				encode(t, &x509.CertificateRequest{Subject: subject("cluster1", "agent1"), DNSNames: []string{"hub"}}, key)),
			"extension"},
		"no PEM": {body([]byte("x")), "PEM"},
		"another PEM": {body(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: forged.Bytes})),
			"PEM"},
		"two requests": {body(slices.Concat(good.Spec.Request, good.Spec.Request)), "PEM"},
		"no DER": {body(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("x")})),
			"parse"},
		"signature of another key": {body(pem.EncodeToMemory(forged)), "signed"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := csr.Parse(c.csr)
			switch {
			case c.want == "" && (err != nil || got.User() != "system:open-cluster-management:cluster1:agent1"):
				t.Errorf("parsed as %+v, %v, want agent1 of cluster1", got, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v lacks %q", err, c.want)
			}
		})
	}
}

// huge returns a request with an RSA key of so many bits. Its signature is
// wrong, which only a parser that verifies with this key can say.
func huge(t testing.TB, bits int) []byte {
	t.Helper()
	key, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), bits-1, 1), E: 65537})
	regtest.Must(t, err)
	name, err := asn1.Marshal(subject("cluster1", "agent1").ToRDNSequence())
	regtest.Must(t, err)
	type body struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	der, err := asn1.Marshal(struct {
		Body      body
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{body{Subject: asn1.RawValue{FullBytes: name}, PublicKey: asn1.RawValue{FullBytes: key}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11},
			Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, (bits+7)/8), BitLength: (bits + 7) / 8 * 8}})
	regtest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// Whatever a request says, what comes back are names whose user and groups are
// exactly those of the certificate.
func FuzzParseRequest(f *testing.F) {
	key := ecKey(f)
	for _, s := range []pkix.Name{subject("cluster1", "agent1"), subject("cluster1", "agent1", "system:masters"),
		subject("cluster10", "agent1")} {
		f.Add("cluster1", asks(f, "cluster1", s, key).Spec.Request)
	}
	f.Add("cluster1",
		encode(f, &x509.CertificateRequest{Subject: subject("cluster1", "agent1"), DNSNames: []string{"hub"}}, key))
	f.Fuzz(func(t *testing.T, cluster string, request []byte) {
		got, err := csr.Parse(labeled(cluster, request))
		if err != nil {
			return
		}
		block, _ := pem.Decode(request)
		parsed, err := x509.ParseCertificateRequest(block.Bytes)
		regtest.Must(t, err)
		want := subject(cluster, got.Agent)
		if len(parsed.Subject.Names) == 2 {
			want.Organization = want.Organization[:1]
		}
		if len(parsed.Extensions) > 0 || got.Cluster != cluster || registration.CheckClusterName(cluster) != nil ||
			parsed.Subject.CommonName != want.CommonName || len(parsed.Subject.Names) != 1+len(want.Organization) ||
			!slices.Equal(slices.Sorted(slices.Values(parsed.Subject.Organization)),
				slices.Sorted(slices.Values(want.Organization))) {
			t.Errorf("parsed as %+v, the subject is %+v", got, parsed.Subject)
		}
	})
}

// FuzzParseRequestSubject asks for arbitrary names with a valid signature.
func FuzzParseRequestSubject(f *testing.F) {
	key := ecKey(f)
	f.Add("cluster1", "system:open-cluster-management:cluster1:agent1", "system:open-cluster-management:cluster1",
		"system:open-cluster-management:managed-clusters")
	f.Add("cluster1", "system:open-cluster-management:cluster10:agent1", "system:open-cluster-management:cluster1",
		"system:open-cluster-management:managed-clusters")
	f.Add("cluster1", "system:open-cluster-management:cluster1:agent1", "system:open-cluster-management:cluster1",
		"system:masters")
	f.Fuzz(func(t *testing.T, cluster, user, group1, group2 string) {
		der, err := x509.CreateCertificateRequest(rand.Reader,
			&x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{group1, group2}}}, key)
		if err != nil {
			return // no such name can be encoded
		}
		got, err := csr.Parse(labeled(cluster, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})))
		groups := []string{group1, group2}
		slices.Sort(groups)
		want := subject(cluster, strings.TrimPrefix(user, "system:open-cluster-management:"+cluster+":"))
		slices.Sort(want.Organization)
		if err == nil && (got.Cluster != cluster || got.User() != user || user != want.CommonName ||
			!slices.Equal(groups, want.Organization)) {
			t.Errorf("parsed as %+v, the subject is %q in %q", got, user, groups)
		}
	})
}

// testHub is an approver over a fake API server.
type testHub struct {
	driver  *csr.HubDriver
	client  client.Client
	allowed func(authorizationv1.SubjectAccessReviewSpec) bool
	events  *events.FakeRecorder
	now     time.Time
}

func newHub(t testing.TB, objects ...client.Object) *testHub {
	t.Helper()
	h := &testHub{events: events.NewFakeRecorder(100), now: start}
	h.client = fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithObjects(objects...).WithStatusSubresource(
		&ocm.ManagedCluster{}, &certificatesv1.CertificateSigningRequest{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if review, ok := obj.(*authorizationv1.SubjectAccessReview); ok {
					review.Status.Allowed = h.allowed != nil && h.allowed(review.Spec)
					return nil
				}
				return c.Create(ctx, obj, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, part string, obj client.Object,
				opts ...client.SubResourceUpdateOption) error {
				if part != "approval" {
					return errors.New("subresource " + part)
				}
				return c.Status().Update(ctx, obj, opts...)
			},
		}).Build()
	var err error
	h.driver,
		err = csr.NewHubDriver(csr.HubDriverOptions{Client: h.client, Reader: h.client, Events: h.events,
		Now:            func() time.Time { return h.now },
		BootstrapUsers: []string{bootstrapUser}, BootstrapGroups: []string{bootstrapGroup},
		AutoApproveUsers: []string{autoUser}})
	regtest.Must(t, err)
	return h
}

// reconcile reports whether the request is approved now, and after which time
// it is checked again.
func (h *testHub) reconcile(t testing.TB) (approved bool, again time.Duration) {
	t.Helper()
	result, err := csr.Reconcile(t.Context(), h.driver, "csr1")
	regtest.Must(t, err)
	c := &certificatesv1.CertificateSigningRequest{}
	regtest.Must(t, h.client.Get(t.Context(), client.ObjectKey{Name: "csr1"}, c))
	for _, condition := range c.Status.Conditions {
		if condition.Type != certificatesv1.CertificateApproved {
			t.Errorf("condition %+v", condition)
		}
		approved = true
	}
	return approved, result.RequeueAfter
}

// event returns the last event, or "".
func (h *testHub) event() (last string) {
	for {
		select {
		case last = <-h.events.Events:
		default:
			return last
		}
	}
}

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(start)}
}

func accepted(name string, more ...metav1.Condition) *ocm.ManagedCluster {
	return &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true},
		Status: ocm.ManagedClusterStatus{Conditions: append(more,
			condition(ocm.ConditionHubAccepted, metav1.ConditionTrue, ocm.ReasonHubAccepted))}}
}

func record(cluster, authType string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:managedcluster:" + cluster,
		Annotations: map[string]string{"registration.open-cluster-management.io/auth-type": authType}}}
}

func from(c *certificatesv1.CertificateSigningRequest, user string,
	groups ...string) *certificatesv1.CertificateSigningRequest {
	c = c.DeepCopy()
	c.Spec.Username, c.Spec.Groups = user, groups
	return c
}

func TestApprover(t *testing.T) {
	request := asks(t, "cluster1", subject("cluster1", "agent1"), ecKey(t))
	agent, joined := "system:open-cluster-management:cluster1:agent1",
		condition(ocm.ConditionJoined, metav1.ConditionTrue, "Joined")
	denied := accepted("cluster1")
	denied.Spec.HubAcceptsClient = false
	unready := accepted("cluster1")
	unready.Status.Conditions = nil
	deleted := accepted("cluster1")
	deleted.Finalizers, deleted.DeletionTimestamp = []string{ocm.Finalizer}, &metav1.Time{Time: start}
	all := func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
	only := func(s authorizationv1.SubjectAccessReviewSpec) bool {
		want := authorizationv1.ResourceAttributes{Verb: "renew", Group: "register.open-cluster-management.io",
			Resource: "managedclusters", Subresource: "clientcertificates", Name: "cluster1"}
		return s.User == agent && slices.Equal(s.Groups, []string{"g"}) && *s.ResourceAttributes == want
	}
	csrRecord := record("cluster1", "csr")
	for name, c := range map[string]struct {
		request *certificatesv1.CertificateSigningRequest
		objects []client.Object
		allowed func(authorizationv1.SubjectAccessReviewSpec) bool
		want    string // of the event; "" means approved
		final   bool
	}{
		"first request of a bootstrap user": {from(request, bootstrapUser),
			[]client.Object{accepted("cluster1"), csrRecord}, nil, "", false},
		"first request of a bootstrap group": {from(request, "system:bootstrap:abcdef",
			bootstrapGroup), []client.Object{accepted("cluster1"), csrRecord}, nil, "", false},
		"first request of an auto-approved user of an accepted cluster": {from(request, autoUser),
			[]client.Object{accepted("cluster1"), csrRecord}, nil, "", false},
		"a bootstrap user asks for a joined cluster": {from(request, bootstrapUser),
			[]client.Object{accepted("cluster1", joined), csrRecord}, all, "AlreadyJoined cluster", false},
		"an auto-approved user asks for a joined cluster": {from(request, autoUser),
			[]client.Object{accepted("cluster1", joined), csrRecord}, all, "AlreadyJoined cluster", false},
		"another user": {from(request, "jane"), []client.Object{accepted("cluster1"), csrRecord}, all,
			"UnknownRequester user", false},
		"a user whose name begins like a bootstrap user": {from(request, bootstrapUser+"2"),
			[]client.Object{accepted("cluster1"), csrRecord}, all, "UnknownRequester user", false},
		"another cluster's agent": {
			from(request, "system:open-cluster-management:cluster10:agent1", "system:open-cluster-management:cluster10"),
			[]client.Object{accepted("cluster1", joined), csrRecord}, all, "UnknownRequester user", false},
		"another agent of the cluster": {
			from(request, "system:open-cluster-management:cluster1:agent2"),
			[]client.Object{accepted("cluster1", joined), csrRecord}, all, "UnknownRequester user", false},
		"a bootstrap user before the cluster exists": {from(request, bootstrapUser), nil, nil,
			"NoManagedCluster there is no ManagedCluster", false},
		"a bootstrap user before acceptance": {from(request, bootstrapUser),
			[]client.Object{&ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}}, nil,
			"NotAccepted the hub has not accepted", false},
		"a bootstrap user while another cluster is accepted": {from(request, bootstrapUser),
			[]client.Object{accepted("cluster10"), record("cluster10", "csr")}, nil,
			"NoManagedCluster there is no ManagedCluster", false},
		"a bootstrap user before the hub has granted": {from(request, bootstrapUser),
			[]client.Object{unready, csrRecord}, nil, "NotAccepted the hub has not accepted", false},
		"a bootstrap user after denial": {from(request, bootstrapUser),
			[]client.Object{denied, csrRecord}, nil, "NotAccepted the hub has not accepted", false},
		"a bootstrap user while the cluster is deleted": {from(request, bootstrapUser),
			[]client.Object{deleted, csrRecord}, nil, "NotAccepted the hub has not accepted", false},
		"a bootstrap user of a cluster without a record": {from(request, bootstrapUser),
			[]client.Object{accepted("cluster1")}, nil, "OtherAuthType cluster", false},
		"a bootstrap user of a cluster that was accepted for another driver": {from(request, bootstrapUser),
			[]client.Object{accepted("cluster1"), record("cluster1", "aws-irsa")}, nil,
			"OtherAuthType cluster \"cluster1\" is accepted with auth type \"aws-irsa\"", false},
		"renewal": {from(request, agent, "g"), []client.Object{accepted("cluster1", joined), csrRecord}, only, "", false},
		"renewal before the agent has written that it joined": {from(request, agent, "g"),
			[]client.Object{accepted("cluster1"), csrRecord}, only, "", false},
		"renewal that RBAC refuses": {from(request, agent),
			[]client.Object{accepted("cluster1", joined), csrRecord}, nil, "RenewalForbidden RBAC", false},
		"renewal that RBAC refuses, of a user who is a bootstrap user too": {from(request, agent, bootstrapGroup),
			[]client.Object{accepted("cluster1"), csrRecord}, nil, "RenewalForbidden RBAC", false},
		"renewal after denial": {from(request, agent, "g"),
			[]client.Object{denied, csrRecord}, only, "NotAccepted the hub has not accepted", false},
		"renewal with one organization too many": {
			from(asks(t, "cluster1", subject("cluster1", "agent1", "system:masters"), ecKey(t)), agent),
			[]client.Object{accepted("cluster1", joined), csrRecord}, all, "InvalidRequest the subject", true},
		"an agent of cluster1 asks for cluster10, which its label hides": {
			from(asks(t, "cluster1", subject("cluster10", "agent1"), ecKey(t)), agent),
			[]client.Object{accepted("cluster1", joined), csrRecord, accepted("cluster10"), record("cluster10", "csr")}, all,
			"InvalidRequest the common name", true},
		"an agent of cluster10 asks for cluster1": {
			from(asks(t, "cluster10", subject("cluster1", "agent1"), ecKey(t)),
				"system:open-cluster-management:cluster10:agent1"),
			[]client.Object{accepted("cluster1"), csrRecord, accepted("cluster10", joined), record("cluster10", "csr")}, all,
			"InvalidRequest the common name", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, append(slices.Clone(c.objects), c.request)...)
			h.allowed = c.allowed
			approved, again := h.reconcile(t)
			if approved != (c.want == "") {
				t.Fatalf("approved %t: %s", approved, h.event())
			}
			if event := h.event(); !strings.Contains(event, c.want) {
				t.Errorf("event %q lacks %q", event, c.want)
			}
			if wait := c.want != "" && !c.final; wait != (again == time.Second) {
				t.Errorf("checked again after %s", again)
			}
		})
	}
}

func TestRefusedRequestIsJudgedAgainAfterItsAge(t *testing.T) {
	h := newHub(t, from(asks(t, "cluster1", subject("cluster1", "agent1"), ecKey(t)), bootstrapUser))
	for age, want := range map[time.Duration]time.Duration{-time.Hour: time.Second, 0: time.Second,
		7 * time.Second: 7 * time.Second, time.Hour: 5 * time.Minute} {
		h.now = start.Add(age)
		if _, again := h.reconcile(t); again != want {
			t.Errorf("a request %s old is checked again after %s", age, again)
		}
	}
	regtest.Must(t,
		errors.Join(h.client.Create(t.Context(), accepted("cluster1")),
			h.client.Create(t.Context(), record("cluster1", "csr"))))
	if approved, _ := h.reconcile(t); !approved {
		t.Errorf("refused: %s", h.event())
	}
}

func TestApproverLeavesOtherRequestsAlone(t *testing.T) {
	request := from(asks(t, "cluster1", subject("cluster1", "agent1"), ecKey(t)), bootstrapUser)
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
		"no label":       func(c *certificatesv1.CertificateSigningRequest) { c.Labels = nil },
		"another signer": func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "example.com/signer" },
		"denied": func(c *certificatesv1.CertificateSigningRequest) {
			c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
				Status: corev1.ConditionTrue}}
		},
		"failed": func(c *certificatesv1.CertificateSigningRequest) {
			c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed,
				Status: corev1.ConditionTrue}}
		},
		"issued": func(c *certificatesv1.CertificateSigningRequest) { c.Status.Certificate = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			c := request.DeepCopy()
			change(c)
			h := newHub(t, c, accepted("cluster1"), record("cluster1", "csr"))
			if result, err := csr.Reconcile(t.Context(), h.driver, "csr1"); err != nil || result.RequeueAfter != 0 ||
				h.event() != "" {
				t.Errorf("result %+v, %v, want none and no Event", result, err)
			}
		})
	}
	if result, err := csr.Reconcile(t.Context(), newHub(t).driver, "csr1"); err != nil || result.RequeueAfter != 0 {
		t.Errorf("without a request the result is %+v, %v, want none", result, err)
	}
}

// The hub reconciler accepts the cluster: it knows which driver the cluster
// belongs to.
func TestAutoApprovalNeedsARequestOfAListedUser(t *testing.T) {
	request := asks(t, "cluster1", subject("cluster1", "agent1"), ecKey(t))
	neighbour := from(asks(t, "cluster10", subject("cluster10", "agent1"), ecKey(t)), autoUser)
	issued := from(request, autoUser)
	issued.Status.Certificate = []byte("x")
	for name, c := range map[string]struct {
		request    *certificatesv1.CertificateSigningRequest
		conditions []metav1.Condition
		want       bool
	}{
		"auto-approved user": {from(request, autoUser), nil, true},
		"bootstrap user":     {from(request, bootstrapUser), nil, false},
		"denied cluster": {from(request, autoUser),
			[]metav1.Condition{condition(ocm.ConditionHubAccepted, metav1.ConditionFalse, ocm.ReasonHubDenied)}, false},
		"joined cluster": {from(request, autoUser),
			[]metav1.Condition{condition(ocm.ConditionJoined, metav1.ConditionTrue, "Joined")}, false},
		"request for another cluster": {neighbour, nil, false},
		"decided request":             {issued, nil, false},
		"malformed request": {from(asks(t, "cluster1", subject("cluster1", "agent1", "system:masters"), ecKey(t)),
			autoUser), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"},
				Status: ocm.ManagedClusterStatus{Conditions: c.conditions}}
			h := newHub(t, c.request, cluster)
			if ok, err := h.driver.Approves(t.Context(), cluster, ""); err != nil || ok {
				t.Errorf("approved before the request was seen: %t, %v", ok, err)
			}
			approved, _ := h.reconcile(t)
			if approved {
				t.Fatal("the request was approved before the cluster was accepted")
			}
			regtest.Must(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
			if cluster.Spec.HubAcceptsClient || (len(cluster.Annotations) > 0) != c.want {
				t.Errorf("cluster %+v", cluster)
			}
			// as an agent may do
			metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, "registration.open-cluster-management.io/first-request", "csr1")
			if ok, err := h.driver.Approves(t.Context(), cluster, ""); err != nil || ok != c.want {
				t.Errorf("approved: %t, %v", ok, err)
			}
		})
	}
}

func TestNewHubRefusesGroupsOfEveryone(t *testing.T) {
	for _, group := range []string{"system:authenticated", "system:unauthenticated", "system:serviceaccounts",
		"system:open-cluster-management:managed-clusters"} {
		if _,
			err := csr.NewHubDriver(csr.HubDriverOptions{Client: fake.NewFakeClient(), Reader: fake.NewFakeClient(),
			BootstrapGroups: []string{group}}); err == nil || !strings.Contains(err.Error(), group) {
			t.Errorf("error %v, want one that names %q", err, group)
		}
	}
	if _, err := csr.NewHubDriver(csr.HubDriverOptions{}); err == nil {
		t.Error("no client")
	}
}

// The hub does not call Grant for such a cluster, so another driver's record or
// a missing agent must not count.
func TestGrantedGoesByTheRecord(t *testing.T) {
	const authType = ocm.AuthTypeAnnotation
	for name, test := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"with an agent":     {map[string]string{authType: "csr", ocm.AgentAnnotation: "agent1"}, true},
		"without an agent":  {map[string]string{authType: "csr"}, false},
		"of another driver": {map[string]string{authType: "aws-irsa", ocm.AgentAnnotation: "agent1"}, false},
		"of a denied one":   {map[string]string{ocm.AgentAnnotation: "agent1"}, false},
		"without a record":  {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			if got := (&csr.HubDriver{}).Granted("cluster1", role); got != test.want {
				t.Errorf("granted: %v", got)
			}
		})
	}
}
