package csr_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

var start = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// ca signs as kube-controller-manager does.
type ca struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	regtest.Must(t, err)
	return key
}

func newCA(t testing.TB) *ca {
	return &ca{key: ecKey(t),
		cert: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
			BasicConstraintsValid: true}}
}

// sign backdates by 5 min, and ends a short certificate after its whole
// lifetime, a long one 5 min earlier.
func (c *ca) sign(t testing.TB, subject pkix.Name, key any, now time.Time, lifetime time.Duration) []byte {
	t.Helper()
	notAfter := now.Add(lifetime)
	if lifetime >= 8*time.Hour {
		notAfter = notAfter.Add(-5 * time.Minute)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	regtest.Must(t, err)
	template := &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-5 * time.Minute),
		NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key, c.key)
	regtest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// environment is an agent and its hub, with a clock each.
type environment struct {
	t        testing.TB
	hub      client.WithWatch
	ca       *ca
	options  csr.Options
	now      time.Time     // by the hub
	ahead    time.Duration // of the agent's clock
	lifetime time.Duration
	sign     bool // at once
	agent    string
	addOn    string
	item     ocm.Registration
	creates  []time.Time
	secret   map[string][]byte
	state    map[string][]byte
}

func newEnvironment(t testing.TB) *environment {
	w := &environment{t: t, ca: newCA(t), now: start, lifetime: 24 * time.Hour, agent: "agent1"}
	w.hub = fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithStatusSubresource(
		&certificatesv1.CertificateSigningRequest{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: w.create}).Build()
	return w
}

func (w *environment) create(ctx context.Context, c client.WithWatch, obj client.Object,
	opts ...client.CreateOption) error {
	w.creates = append(w.creates, w.now)
	obj.SetCreationTimestamp(metav1.NewTime(w.now))
	if err := c.Create(ctx, obj, opts...); err != nil || !w.sign {
		return err
	}
	w.issue(obj.GetName(), func(r *x509.CertificateRequest) []byte {
		return w.ca.sign(w.t, r.Subject, r.PublicKey, w.now, w.lifetime)
	})
	return nil
}

// request returns the only request on the hub.
func (w *environment) request() *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := w.hub.List(w.t.Context(), &list); err != nil || len(list.Items) != 1 {
		w.t.Fatalf("%d requests, %v", len(list.Items), err)
	}
	return &list.Items[0]
}

func (w *environment) issue(name string, sign func(*x509.CertificateRequest) []byte) {
	w.t.Helper()
	w.update(name, func(c *certificatesv1.CertificateSigningRequest) {
		c.Status.Conditions = append(c.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(w.now)})
		c.Status.Certificate = sign(parse(w.t, c))
	})
}

func (w *environment) update(name string, change func(*certificatesv1.CertificateSigningRequest)) {
	w.t.Helper()
	c := &certificatesv1.CertificateSigningRequest{}
	regtest.Must(w.t, w.hub.Get(w.t.Context(), client.ObjectKey{Name: name}, c))
	change(c)
	regtest.Must(w.t, w.hub.Status().Update(w.t.Context(), c))
}

func parse(t testing.TB, c *certificatesv1.CertificateSigningRequest) *x509.CertificateRequest {
	t.Helper()
	block, _ := pem.Decode(c.Spec.Request)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	regtest.Must(t, err)
	return r
}

func (w *environment) input() registration.Input {
	return registration.Input{Now: w.now.Add(w.ahead), Cluster: "cluster1", Agent: w.agent, Addon: w.addOn, Item: w.item,
		Stored: w.secret, State: w.state, Hub: w.hub}
}

// step does what the reconciler does, with a new driver each time: drivers
// remember nothing.
func (w *environment) step() registration.Step {
	w.t.Helper()
	step, err := csr.New(w.options).Next(w.t.Context(), w.input())
	regtest.Must(w.t, err)
	if step.Credential != nil {
		w.secret = step.Credential.Files
	}
	w.state = step.State
	return step
}

// run steps whenever the driver wants it, for a while.
func (w *environment) run(d time.Duration, each func()) {
	w.t.Helper()
	for end := w.now.Add(d); ; {
		step := w.step()
		each()
		if step.At.IsZero() {
			w.t.Fatalf("nothing will happen: %+v", step)
		}
		next := later(step.At.Add(-w.ahead), w.now)
		if next.After(end) {
			w.now = end
			return
		}
		w.now = next
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// leaf returns the stored certificate.
func (w *environment) leaf() *x509.Certificate {
	w.t.Helper()
	block, _ := pem.Decode(w.secret["tls.crt"])
	if block == nil {
		w.t.Fatal("no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	regtest.Must(w.t, err)
	return leaf
}

func (w *environment) expectRequests(n int) {
	w.t.Helper()
	if len(w.creates) != n {
		w.t.Errorf("%d requests were created, want %d", len(w.creates), n)
	}
}

// expect checks a condition of the type that the driver sets.
func expect(t testing.TB, step registration.Step, status metav1.ConditionStatus, reason string, message ...string) {
	t.Helper()
	c := step.Condition
	if c == nil || c.Type != "ClusterCertificateRotated" || c.Status != status || c.Reason != reason {
		t.Fatalf("condition %+v instead of %s/%s", c, status, reason)
	}
	for _, part := range message {
		if !strings.Contains(c.Message, part) {
			t.Errorf("the message lacks %q: %s", part, c.Message)
		}
	}
}

func TestKeyIsStoredBeforeItsRequestIsMade(t *testing.T) {
	w := newEnvironment(t)
	step := w.step()
	w.expectRequests(0)
	if len(step.State["key"]) == 0 || step.Credential != nil || !step.At.Equal(w.now) {
		t.Errorf("first step %+v", step)
	}
	step = w.step()
	w.expectRequests(1)
	expect(t, step, metav1.ConditionFalse, "ClientCertificateNotApproved", w.request().Name)
	if wait := step.At.Sub(w.now); wait != time.Second {
		t.Errorf("looks again after %s", wait)
	}
}

func TestRequestSaysExactlyWhoAsks(t *testing.T) {
	w := newEnvironment(t)
	w.options.Lifetime = time.Hour
	w.step()
	w.step()
	c := w.request()
	if !strings.HasPrefix(c.Name, "cluster1-") || len(c.Name) != len("cluster1-")+32 {
		t.Errorf("name %q", c.Name)
	}
	if want := map[string]string{"open-cluster-management.io/cluster-name": "cluster1"}; !maps.Equal(c.Labels, want) {
		t.Errorf("labels %v", c.Labels)
	}
	if c.Spec.SignerName != "kubernetes.io/kube-apiserver-client" || *c.Spec.ExpirationSeconds != 3600 ||
		!slices.Equal(c.Spec.Usages, []certificatesv1.KeyUsage{"digital signature", "client auth"}) {
		t.Errorf("spec %+v", c.Spec)
	}
	r := parse(t, c)
	if r.Subject.CommonName != "system:open-cluster-management:cluster1:agent1" || len(r.Subject.Names) != 3 ||
		len(r.Extensions) != 0 ||
		!slices.Equal(slices.Sorted(slices.Values(r.Subject.Organization)),
			[]string{"system:open-cluster-management:cluster1", "system:open-cluster-management:managed-clusters"}) {
		t.Errorf("subject %+v", r.Subject)
	}
	if _, ok := r.PublicKey.(*ecdsa.PublicKey); !ok {
		t.Errorf("key %T", r.PublicKey)
	}
	got, err := csr.Parse(c)
	if err != nil || got.Identity != (csr.Identity{Cluster: "cluster1", Agent: "agent1", Key: keyHash(t, c)}) {
		t.Errorf("parsed as %+v, %v", got, err)
	}
}

func TestRequestNameDependsOnKeyAndSubject(t *testing.T) {
	names := map[string]bool{}
	for _, agent := range []string{"agent1", "agent2"} {
		for range 2 {
			w := newEnvironment(t)
			w.agent = agent
			w.step()
			w.step()
			names[w.request().Name] = true
		}
	}
	if len(names) != 4 {
		t.Errorf("names %v", names)
	}
}

func TestRestartWhilePendingMakesNoSecondRequest(t *testing.T) {
	w := newEnvironment(t)
	w.run(time.Hour, func() {}) // each step is a restart
	w.expectRequests(1)
	w.issue(w.request().Name, func(r *x509.CertificateRequest) []byte {
		return w.ca.sign(t, r.Subject, r.PublicKey, w.now, w.lifetime)
	})
	step := w.step()
	expect(t, step, metav1.ConditionTrue, "ClientCertificateUpdated", "system:open-cluster-management:cluster1:agent1")
	if step.Credential == nil || step.Credential.User.ClientCertificate != "tls.crt" ||
		step.Credential.User.ClientKey != "tls.key" || step.State["key"] != nil {
		t.Errorf("step %+v", step)
	}
	w.leaf()
	again := w.step()
	w.expectRequests(1)
	if !again.At.Equal(step.At) || *again.Condition != *step.Condition ||
		!maps.EqualFunc(again.State, step.State, slices.Equal) {
		t.Errorf("a second look changes %+v to %+v", step, again)
	}
}

// A create that has succeeded although its answer was lost.
func TestLostAnswerMakesNoSecondRequest(t *testing.T) {
	w := newEnvironment(t)
	w.step()
	lost := interceptor.NewClient(w.hub,
		interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object,
			opts ...client.CreateOption) error {
			_ = c.Create(ctx, obj, opts...)
			return errors.New("connection reset")
		}})
	in := w.input()
	in.Hub = lost
	if _, err := csr.New(csr.Options{}).Next(t.Context(), in); err == nil {
		t.Fatal("no error")
	}
	w.step()
	w.expectRequests(1)
}

// Another process of the same agent may create the request between get and
// create.
func TestRequestThatExistsMeanwhileIsTaken(t *testing.T) {
	w := newEnvironment(t)
	w.step()
	w.step()
	missed := false
	in := w.input()
	in.Hub = interceptor.NewClient(w.hub,
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
			opts ...client.GetOption) error {
			if !missed {
				missed = true
				return apierrors.NewNotFound(certificatesv1.Resource("certificatesigningrequests"), key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		}})
	step, err := csr.New(csr.Options{}).Next(t.Context(), in)
	regtest.Must(t, err)
	expect(t, step, metav1.ConditionFalse, "ClientCertificateNotApproved", w.request().Name)
}

func TestDeletedRequestIsMadeAgainWithTheSameKey(t *testing.T) {
	w := newEnvironment(t)
	w.step()
	w.step()
	first := w.request()
	regtest.Must(t, w.hub.Delete(t.Context(), first))
	w.step()
	w.step()
	w.expectRequests(2)
	if w.request().Name != first.Name {
		t.Error("another name")
	}
}

func TestRefusedRequestIsAConditionAndNotALoop(t *testing.T) {
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied,
		certificatesv1.CertificateFailed} {
		t.Run(string(kind), func(t *testing.T) {
			w := newEnvironment(t)
			w.step()
			w.step()
			name := w.request().Name
			w.update(name, func(c *certificatesv1.CertificateSigningRequest) {
				c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue,
					Reason: "Because", Message: "not you"}}
			})
			step := w.step()
			expect(t, step, metav1.ConditionFalse, "ClientCertificate"+string(kind), name, "Because", "not you", "Delete")
			if wait := step.At.Sub(w.now); wait != 10*time.Minute {
				t.Errorf("looks again after %s", wait)
			}
			w.run(24*time.Hour, func() {})
			w.expectRequests(1)
		})
	}
}

func TestDeniedRenewalKeepsTheCertificate(t *testing.T) {
	w := newEnvironment(t)
	w.sign = true
	w.step()
	w.step()
	step := w.step()
	before := w.leaf()
	w.now, w.sign = step.At, false
	w.step()
	w.step()
	var list certificatesv1.CertificateSigningRequestList
	regtest.Must(t, w.hub.List(t.Context(), &list))
	for _, c := range list.Items {
		if len(c.Status.Certificate) == 0 {
			w.update(c.Name, func(c *certificatesv1.CertificateSigningRequest) {
				c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
					Status: corev1.ConditionTrue}}
			})
		}
	}
	expect(t, w.step(), metav1.ConditionFalse, "ClientCertificateDenied")
	if w.leaf().SerialNumber.Cmp(before.SerialNumber) != 0 {
		t.Error("the certificate was replaced")
	}
	w.expectRequests(2)
}

func TestRenewalThatWaitsLongIsACondition(t *testing.T) {
	w := newEnvironment(t)
	w.sign = true
	w.step()
	w.step()
	step := w.step()
	w.now, w.sign = step.At, false
	w.step()
	if step := w.step(); step.Condition != nil {
		t.Errorf("at once: %+v", step.Condition)
	}
	w.now = w.now.Add(6 * time.Minute)
	expect(t, w.step(), metav1.ConditionFalse, "ClientCertificateNotApproved")
}

// A hub that answers 401 for a moment makes the agent ask anew, with a
// bootstrap credential, for what only a person approves.
func TestPendingKeyIsDroppedWhenTheCertificateWorksAgain(t *testing.T) {
	w := newEnvironment(t)
	w.sign = true
	w.step()
	w.step()
	issued := w.step()
	stored, condition := w.secret, *issued.Condition
	w.sign, w.secret, w.now = false, nil, w.now.Add(time.Minute)
	w.step()
	expect(t, w.step(), metav1.ConditionFalse, "ClientCertificateNotApproved")
	w.secret = stored
	step := w.step()
	if step.State["key"] != nil || !step.At.Equal(issued.At) || step.Condition == nil || *step.Condition != condition {
		t.Errorf("step %+v instead of %+v", step, issued)
	}
	w.expectRequests(2)
	t.Run("but a renewal goes on", func(*testing.T) {
		w.now = step.At
		w.run(time.Hour, func() {})
		w.expectRequests(3)
	})
}

func TestFirstRequestIsReadEvery5Seconds(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"clock right": 0, "clock a day behind": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.ahead = ahead
			w.run(time.Hour, func() {})
			if after := w.step().At.Sub(w.now.Add(ahead)); after != 5*time.Second {
				t.Errorf("again after %s", after)
			}
		})
	}
}

func TestApprovedButNotSignedSaysSo(t *testing.T) {
	w := newEnvironment(t)
	w.step()
	w.step()
	w.update(w.request().Name, func(c *certificatesv1.CertificateSigningRequest) {
		c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue}}
	})
	expect(t, w.step(), metav1.ConditionFalse, "ClientCertificateNotSigned")
}

func TestCertificateThatWasNotAskedForIsRefused(t *testing.T) {
	for name, sign := range map[string]func(*testing.T, *environment, *x509.CertificateRequest) []byte{
		"another key": func(t *testing.T, w *environment, r *x509.CertificateRequest) []byte {
			return w.ca.sign(t, r.Subject, ecKey(t).Public(), w.now, w.lifetime)
		},
		"another cluster": func(t *testing.T, w *environment, r *x509.CertificateRequest) []byte {
			return w.ca.sign(t, pkix.Name{CommonName: "system:open-cluster-management:cluster10:agent1",
				Organization: r.Subject.Organization}, r.PublicKey, w.now, w.lifetime)
		},
		"no organizations": func(t *testing.T, w *environment, r *x509.CertificateRequest) []byte {
			return w.ca.sign(t, pkix.Name{CommonName: r.Subject.CommonName}, r.PublicKey, w.now, w.lifetime)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.step()
			w.step()
			w.issue(w.request().Name, func(r *x509.CertificateRequest) []byte { return sign(t, w, r) })
			step := w.step()
			expect(t, step, metav1.ConditionFalse, "ClientCertificateUnusable", w.request().Name)
			if step.Credential != nil || strings.Contains(step.Condition.Message, "PRIVATE") {
				t.Errorf("step %+v", step)
			}
			w.run(time.Hour, func() {})
			w.expectRequests(1)
		})
	}
}

func TestInputThatCannotBeRegistered(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*registration.Input)
		want   string
	}{
		"cluster is no DNS label": {func(in *registration.Input) { in.Cluster = "a.b" }, `"a.b"`},
		"cluster is reserved":     {func(in *registration.Input) { in.Cluster = "managed-clusters" }, `"managed-clusters"`},
		"no agent":                {func(in *registration.Input) { in.Agent = "" }, "agent name"},
		"agent is no DNS label":   {func(in *registration.Input) { in.Agent = "a:b" }, `"a:b"`},
		"add-on without an item":  {func(in *registration.Input) { in.Addon = "search" }, `"search"`},
		"add-on is no DNS label":  {func(in *registration.Input) { in.Addon = "a:b" }, `"a:b"`},
		"customSigner without a body": {func(in *registration.Input) {
			in.Addon, in.Item = "search", ocm.Registration{Type: ocm.CustomSigner}
		}, "with a signer"},
		"unknown type": {func(in *registration.Input) {
			in.Addon, in.Item = "search", ocm.Registration{Type: "magic"}
		}, `"magic"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			in := w.input()
			c.change(&in)
			if _, err := csr.New(csr.Options{}).Next(t.Context(), in); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			w.expectRequests(0)
		})
	}
}

func TestHubThatRefusesIsAnError(t *testing.T) {
	forbidden := apierrors.NewForbidden(certificatesv1.Resource("certificatesigningrequests"), "x", errors.New("no"))
	for name, funcs := range map[string]interceptor.Funcs{
		"get": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		}},
		"create": {Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return forbidden
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.step()
			in := w.input()
			in.Hub = interceptor.NewClient(w.hub, funcs)
			_, err := csr.New(csr.Options{}).Next(t.Context(), in)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), name+" CertificateSigningRequest \"cluster1-") {
				t.Errorf("error %v", err)
			}
		})
	}
}
