package csr_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/internal/testing/slowserver"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	agentAnnotation = "registration.open-cluster-management.io/agent"
	keyAnnotation   = "registration.open-cluster-management.io/agent-key"
)

// keyHash returns the SHA-256 of the public key in a request.
func keyHash(t testing.TB, r *certificatesv1.CertificateSigningRequest) string {
	t.Helper()
	return fmt.Sprintf("%x", sha256.Sum256(parse(t, r).RawSubjectPublicKeyInfo))
}

// recordFor is the record of a cluster that was accepted for the agent of a
// request.
func recordFor(t *testing.T, request *certificatesv1.CertificateSigningRequest) *rbacv1.ClusterRole {
	t.Helper()
	parsed, err := csr.Parse(request)
	regtest.Must(t, err)
	role := record("cluster1", "csr")
	role.Annotations[agentAnnotation], role.Annotations[keyAnnotation] = parsed.Agent, keyHash(t, request)
	return role
}

// denied is the role that is left of a denied cluster.
func denied(role *rbacv1.ClusterRole) *rbacv1.ClusterRole {
	delete(role.Annotations, "registration.open-cluster-management.io/auth-type")
	return role
}

// wantRecorded expects the agent and the key of a request in the ClusterRole,
// or none of both.
func wantRecorded(t *testing.T, c client.Client, request *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	role, want := record("cluster1", "csr"), record("cluster1", "csr")
	if request != nil {
		want = recordFor(t, request)
	}
	regtest.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	for _, key := range []string{agentAnnotation, keyAnnotation} {
		if got := role.Annotations[key]; got != want.Annotations[key] {
			t.Errorf("%s is %q, want %q", key, got, want.Annotations[key])
		}
	}
}

// requestOf returns the request of a bootstrap user for a certificate of an
// agent of cluster1.
func requestOf(t *testing.T, name, agent, user string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	r := from(asks(t, "cluster1", subject("cluster1", agent), ecKey(t)), user)
	r.Name = name
	return r
}

func decided(r *certificatesv1.CertificateSigningRequest,
	how certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: how, Status: corev1.ConditionTrue}}
	return r
}

// Each acceptance is for one agent: a bootstrap credential gets no second
// certificate of a cluster that has not joined.
func TestOneAgentForEachAcceptance(t *testing.T) {
	const self = "system:open-cluster-management:cluster1:agent1"
	const approve = `run wid hub accept --clusters cluster1 --approve-request csr1`
	const refused = `AnotherAgent cluster "cluster1" is accepted for the agent "thief", and this request is for the agent "agent1": if it comes from the right agent, ` + approve
	const anotherKey = `AnotherKey cluster "cluster1" is accepted for the agent "agent1", and this request has another key: if it comes from the right agent, ` + approve
	joined := condition(ocm.ConditionJoined, metav1.ConditionTrue, "Joined")
	own, same := requestOf(t, "csr1", "agent1", bootstrapUser), requestOf(t, "csr2", "agent1", autoUser)
	thief := requestOf(t, "csr2", "thief", autoUser)
	both := fmt.Sprintf(
		`SeveralRequests the agents "agent1" and "thief" both ask for cluster "cluster1", with the keys %.8s and %.8s: `+
			`if this request comes from the right agent, %s; the other one is request "csr2" of user %q`, keyHash(t, own),
		keyHash(t, thief), approve, autoUser)
	yes, no := decided(thief.DeepCopy(), certificatesv1.CertificateApproved),
		decided(thief.DeepCopy(), certificatesv1.CertificateDenied)
	reborn := accepted("cluster1")
	reborn.CreationTimestamp = metav1.NewTime(start.Add(1e9))
	none := record("cluster1", "csr")
	for name, c := range map[string]struct {
		user    string
		objects []client.Object
		want    string                                    // of the event; "" means approved
		record  *certificatesv1.CertificateSigningRequest // afterwards
	}{
		"first request": {bootstrapUser, []client.Object{accepted("cluster1"), none},
			"", own},
		"first request again": {bootstrapUser,
			[]client.Object{accepted("cluster1"), recordFor(t, own)}, "", own},
		"first request of a second agent": {bootstrapUser,
			[]client.Object{accepted("cluster1"), recordFor(t, thief)}, refused, thief},
		"first request with another key": {bootstrapUser,
			[]client.Object{accepted("cluster1"), recordFor(t, same)}, anotherKey, same},
		"renewal": {self,
			[]client.Object{accepted("cluster1", joined), recordFor(t, own)}, "", own},
		"renewal with another key": {self,
			[]client.Object{accepted("cluster1", joined), recordFor(t, same)}, "", same},
		"renewal of a second agent": {self,
			[]client.Object{accepted("cluster1", joined), recordFor(t, thief)}, refused, thief},
		"renewal of an agent that a person let in": {self, []client.Object{accepted("cluster1", joined), none},
			"", own},
		"renewal while a person let another in": {self, []client.Object{accepted("cluster1", joined), none, yes},
			refused, thief},
		"two agents ask": {bootstrapUser, []client.Object{accepted("cluster1"), none, thief},
			both, nil},
		"two agents ask, one is recorded": {bootstrapUser,
			[]client.Object{accepted("cluster1"), recordFor(t, own), thief}, "", own},
		"two ask in the name of one agent": {bootstrapUser, []client.Object{accepted("cluster1"), none, same},
			`the other one is request "csr2"`, nil},
		"a person has approved another": {bootstrapUser, []client.Object{accepted("cluster1"), none, yes},
			refused, thief},
		"a person has approved another in the same name": {bootstrapUser,
			[]client.Object{accepted("cluster1"), none, decided(same.DeepCopy(), certificatesv1.CertificateApproved)},
			anotherKey, same},
		"another was approved for a deleted cluster": {bootstrapUser, []client.Object{reborn, none, yes}, "", own},
		"another was refused by a person": {bootstrapUser, []client.Object{accepted("cluster1"), none, no},
			"", own},
		"a user without a bootstrap credential asks too": {bootstrapUser,
			[]client.Object{accepted("cluster1"), none, requestOf(t, "csr2", "thief", "jane")}, "", own},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, append(copies(c.objects), from(own, c.user))...)
			h.allowed = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
			if approved, _ := h.reconcile(t); approved != (c.want == "") {
				t.Errorf("approved %t", approved)
			}
			if event := h.event(); !strings.Contains(event, c.want) {
				t.Errorf("event %q lacks %q", event, c.want)
			}
			wantRecorded(t, h.client, c.record)
		})
	}
}

// copies lets tests share objects.
func copies(objects []client.Object) (all []client.Object) {
	for _, o := range objects {
		all = append(all, o.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // a copy
	}
	return all
}

// Of what persons approved without a record, the hub records the last, before
// it accepts the cluster.
func TestGrantRecordsTheApprovedAgent(t *testing.T) {
	approved := func(agent string, after time.Duration) *certificatesv1.CertificateSigningRequest {
		r := decided(requestOf(t, "csr-"+agent, agent, bootstrapUser), certificatesv1.CertificateApproved)
		r.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(after))
		return r
	}
	first, second := approved("agent1", time.Second), approved("agent0", time.Minute)
	waiting := accepted("cluster1")
	waiting.Status.Conditions = nil
	malformed := decided(from(asks(t, "cluster1", subject("cluster1", "thief", "system:masters"), ecKey(t)),
		bootstrapUser), certificatesv1.CertificateApproved)
	for name, c := range map[string]struct {
		objects []client.Object
		record  *certificatesv1.CertificateSigningRequest
		search  bool // again
	}{
		"none": {[]client.Object{record("cluster1", "csr"), requestOf(t, "csr1", "agent1", bootstrapUser)},
			nil, true},
		"one":                   {[]client.Object{record("cluster1", "csr"), first}, first, false},
		"two":                   {[]client.Object{record("cluster1", "csr"), first, second}, second, false},
		"one besides the agent": {[]client.Object{recordFor(t, first), second}, first, false},
		"a malformed one":       {[]client.Object{record("cluster1", "csr"), malformed}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, append(copies(c.objects), waiting.DeepCopy())...)
			next, err := h.driver.Grant(t.Context(), "cluster1", "")
			if err != nil || (next > 0) != c.search || next >= time.Hour {
				t.Errorf("again after %s, %v", next, err)
			}
			wantRecorded(t, h.client, c.record)
		})
	}
}

// lagging reads ClusterRoles as they were.
type lagging struct {
	client.Client
	was *rbacv1.ClusterRole
}

func (l lagging) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if role, ok := o.(*rbacv1.ClusterRole); ok {
		l.was.DeepCopyInto(role)
		return nil
	}
	return l.Client.Get(ctx, key, o, opts...)
}

// Of two agents that are checked at the same moment, one gets the record and
// the other one nothing.
func TestAgentsRaceForTheRecord(t *testing.T) {
	h := newHub(t, accepted("cluster1"), record("cluster1", "csr"), requestOf(t, "csr1", "agent1", bootstrapUser))
	was := record("cluster1", "csr")
	regtest.Must(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(was), was))
	agent2 := requestOf(t, "csr2", "agent2", bootstrapUser)
	taken := recordFor(t, agent2)
	taken.ResourceVersion = was.ResourceVersion
	regtest.Must(t, h.client.Update(t.Context(), taken))
	driver,
		err := csr.NewHubDriver(csr.HubDriverOptions{Client: h.client, Reader: lagging{h.client, was},
		BootstrapUsers: []string{bootstrapUser}})
	regtest.Must(t, err)
	if _, err := csr.Reconcile(t.Context(), driver, "csr1"); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want Conflict", err)
	}
	if approved, _ := h.reconcile(t); approved {
		t.Error("approved")
	}
	wantRecorded(t, h.client, agent2)
}

// A person decides for which agent the acceptance is.
func TestApproveReplacesTheRecord(t *testing.T) {
	forbid := interceptor.Funcs{Update: func(_ context.Context, _ client.WithWatch, o client.Object,
		_ ...client.UpdateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, o.GetName(), nil)
	}}
	own, thief, same := requestOf(t, "csr1", "agent1", bootstrapUser), requestOf(t, "csr2", "thief", bootstrapUser),
		requestOf(t, "csr2", "agent1", bootstrapUser)
	for name, c := range map[string]struct {
		role      *rbacv1.ClusterRole
		forbidden bool
		replaces  string
		want      *certificatesv1.CertificateSigningRequest
		fails     bool
	}{
		"no record":                                {record("cluster1", "csr"), false, "", own, false},
		"record of another agent":                  {recordFor(t, thief), false, "thief", own, false},
		"record of another key":                    {recordFor(t, same), false, "agent1", own, false},
		"no record, and the right is missing":      {record("cluster1", "csr"), true, "", nil, false},
		"another's record, the right is missing":   {recordFor(t, thief), true, "thief", thief, true},
		"another key's record, a missing right":    {recordFor(t, same), true, "agent1", same, false},
		"the agent's record, no right is missing":  {recordFor(t, own), true, "", own, false},
		"before the hub has accepted":              {nil, false, "", nil, false},
		"while another agent's cluster is denied":  {denied(recordFor(t, thief)), false, "thief", own, false},
		"a cluster that is accepted with aws-irsa": {record("cluster1", "aws-irsa"), false, "", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			request := own.DeepCopy()
			h := newHub(t, request)
			if c.role != nil {
				regtest.Must(t, h.client.Create(t.Context(), c.role.DeepCopy()))
			}
			person := h.client
			if c.forbidden {
				person = interceptor.NewClient(h.client.(client.WithWatch), forbid) //nolint:forcetypeassert // the fake watches
			}
			regtest.Must(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(request), request))
			asked, err := csr.Parse(request)
			regtest.Must(t, err)
			if agent, err := asked.Replaces(t.Context(), person); err != nil || agent != c.replaces {
				t.Errorf("replaces %q, %v", agent, err)
			}
			if err := asked.Approve(t.Context(), person, "by a person"); (err != nil) != c.fails ||
				c.forbidden && c.fails != apierrors.IsForbidden(err) {
				t.Errorf("error %v", err)
			}
			if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil ||
				c.fails != (len(request.Status.Conditions) == 0) {
				t.Errorf("conditions %+v, %v", request.Status.Conditions, err)
			}
			if c.role != nil {
				wantRecorded(t, h.client, c.want)
			}
		})
	}
}

// The approval follows the record of its agent.
func TestApproveReportsARecordThatTimesOut(t *testing.T) {
	own, err := csr.Parse(requestOf(t, "csr1", "agent1", bootstrapUser))
	regtest.Must(t, err)
	undecided := interceptor.Funcs{SubResourceUpdate: func(context.Context, client.Client, string, client.Object,
		...client.SubResourceUpdateOption) error {
		return nil
	}}
	slowserver.TestObject(t, regtest.Scheme(t), recordFor(t, requestOf(t, "csr2", "thief", bootstrapUser)),
		func(c client.WithWatch) error {
			return own.Approve(t.Context(), interceptor.NewClient(c, undecided), "by a person")
		})
}

func TestDenyEndsARequest(t *testing.T) {
	h := newHub(t, requestOf(t, "csr1", "agent1", bootstrapUser))
	read := func() *csr.Request {
		object := &certificatesv1.CertificateSigningRequest{}
		regtest.Must(t, h.client.Get(t.Context(), client.ObjectKey{Name: "csr1"}, object))
		request, err := csr.Parse(object)
		regtest.Must(t, err)
		return request
	}
	before := read()
	regtest.Must(t, before.Deny(t.Context(), h.client, "not ours"))
	if !before.IsPending() || before.Refusal() != nil {
		t.Error("Deny changed the request that was read")
	}
	denied := read()
	if why := denied.Refusal(); denied.IsPending() || why == nil || why.Type != certificatesv1.CertificateDenied ||
		why.Message != "not ours" {
		t.Errorf("refusal %+v", why)
	}
}
