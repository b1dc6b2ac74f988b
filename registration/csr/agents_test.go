package csr_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

const agentAnnotation = "registration.open-cluster-management.io/agent"

// recordFor is the record of a cluster that was accepted for an agent.
func recordFor(agent string) *rbacv1.ClusterRole {
	role := record("cluster1", "csr")
	role.Annotations[agentAnnotation] = agent
	return role
}

func recorded(t *testing.T, c client.Client) string {
	t.Helper()
	role := record("cluster1", "csr")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(role), role); err != nil {
		t.Fatal(err)
	}
	if role.Annotations["registration.open-cluster-management.io/auth-type"] != "csr" {
		t.Errorf("annotations %q", role.Annotations)
	}
	return role.Annotations[agentAnnotation]
}

// requestOf returns the request of a bootstrap user for a certificate of an agent of cluster1.
func requestOf(t *testing.T, name, agent, user string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	r := from(asks(t, "cluster1", subject("cluster1", agent), ecKey(t)), user)
	r.Name = name
	return r
}

func decided(r *certificatesv1.CertificateSigningRequest, how certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: how, Status: corev1.ConditionTrue}}
	return r
}

// Each acceptance is for one agent: a bootstrap credential gets no second certificate of a cluster that has not joined.
func TestOneAgentForEachAcceptance(t *testing.T) {
	const self = "system:open-cluster-management:cluster1:agent1"
	const refused = `accepted for the agent "thief", and this request is for the agent "agent1": if that is the right one, approve the request with wid hub accept`
	const both = `the agents "agent1" and "thief" both ask for cluster "cluster1"`
	joined := condition(ocm.ConditionJoined, metav1.ConditionTrue, "Joined")
	old := decided(requestOf(t, "csr2", "thief", bootstrapUser), certificatesv1.CertificateApproved)
	reborn := accepted("cluster1")
	reborn.CreationTimestamp = metav1.NewTime(start.Add(1e9))
	for name, c := range map[string]struct {
		user    string
		objects []client.Object
		want    string // of the event; "" means approved
		record  string // afterwards
	}{
		"first request":                                   {bootstrapUser, []client.Object{accepted("cluster1"), record("cluster1", "csr")}, "", "agent1"},
		"first request again":                             {bootstrapUser, []client.Object{accepted("cluster1"), recordFor("agent1")}, "", "agent1"},
		"first request of a second agent":                 {bootstrapUser, []client.Object{accepted("cluster1"), recordFor("thief")}, refused, "thief"},
		"renewal":                                         {self, []client.Object{accepted("cluster1", joined), recordFor("agent1")}, "", "agent1"},
		"renewal of a second agent":                       {self, []client.Object{accepted("cluster1", joined), recordFor("thief")}, refused, "thief"},
		"renewal of an agent that a person let in":        {self, []client.Object{accepted("cluster1", joined), record("cluster1", "csr")}, "", "agent1"},
		"two agents ask":                                  {bootstrapUser, []client.Object{accepted("cluster1"), record("cluster1", "csr"), requestOf(t, "csr2", "thief", autoUser)}, both, ""},
		"two agents ask, one is recorded":                 {bootstrapUser, []client.Object{accepted("cluster1"), recordFor("agent1"), requestOf(t, "csr2", "thief", autoUser)}, "", "agent1"},
		"a person has approved another":                   {bootstrapUser, []client.Object{accepted("cluster1"), record("cluster1", "csr"), old}, both, ""},
		"another was approved for a deleted cluster":      {bootstrapUser, []client.Object{reborn, record("cluster1", "csr"), old}, "", "agent1"},
		"another was refused by a person":                 {bootstrapUser, []client.Object{accepted("cluster1"), record("cluster1", "csr"), decided(requestOf(t, "csr2", "thief", bootstrapUser), certificatesv1.CertificateDenied)}, "", "agent1"},
		"someone without a bootstrap credential asks too": {bootstrapUser, []client.Object{accepted("cluster1"), record("cluster1", "csr"), requestOf(t, "csr2", "thief", "jane")}, "", "agent1"},
		"the same agent asks twice":                       {bootstrapUser, []client.Object{accepted("cluster1"), record("cluster1", "csr"), requestOf(t, "csr2", "agent1", bootstrapUser)}, "", "agent1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, append(slices.Clone(c.objects), requestOf(t, "csr1", "agent1", c.user))...)
			h.allowed = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
			if approved, _ := h.reconcile(t); approved != (c.want == "") {
				t.Errorf("approved %t", approved)
			}
			if event := h.event(); !strings.Contains(event, c.want) {
				t.Errorf("event %q lacks %q", event, c.want)
			}
			if got := recorded(t, h.client); got != c.record {
				t.Errorf("the record is %q", got)
			}
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

// Of two agents that are judged at the same moment, one gets the record and the other one nothing.
func TestAgentsRaceForTheRecord(t *testing.T) {
	h := newHub(t, accepted("cluster1"), record("cluster1", "csr"), requestOf(t, "csr1", "agent1", bootstrapUser))
	was := record("cluster1", "csr")
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(was), was); err != nil {
		t.Fatal(err)
	}
	taken := was.DeepCopy()
	taken.Annotations[agentAnnotation] = "agent2"
	if err := h.client.Update(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: h.client, Reader: lagging{h.client, was}, BootstrapUsers: []string{bootstrapUser}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := csr.Reconcile(t.Context(), driver, "csr1"); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	if approved, _ := h.reconcile(t); approved || recorded(t, h.client) != "agent2" {
		t.Errorf("approved %t, the record is %q", approved, recorded(t, h.client))
	}
}

// A person decides for which agent the acceptance is.
func TestApproveReplacesTheRecord(t *testing.T) {
	forbid := interceptor.Funcs{Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, o.GetName(), nil)
	}}
	for name, c := range map[string]struct {
		role      *rbacv1.ClusterRole
		forbidden bool
		want      string
		fails     bool
	}{
		"no record":                               {record("cluster1", "csr"), false, "agent1", false},
		"record of another agent":                 {recordFor("thief"), false, "agent1", false},
		"no record, and the right is missing":     {record("cluster1", "csr"), true, "", false},
		"another's record, the right is missing":  {recordFor("thief"), true, "thief", true},
		"the agent's record, no right is missing": {recordFor("agent1"), true, "agent1", false},
		"before the hub has accepted":             {nil, false, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			request := requestOf(t, "csr1", "agent1", bootstrapUser)
			h := newHub(t, request)
			if c.role != nil {
				if err := h.client.Create(t.Context(), c.role); err != nil {
					t.Fatal(err)
				}
			}
			person := h.client
			if c.forbidden {
				person = interceptor.NewClient(h.client.(client.WithWatch), forbid) //nolint:forcetypeassert // the fake watches
			}
			if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
				t.Fatal(err)
			}
			if err := csr.Approve(t.Context(), person, request, "by a person"); apierrors.IsForbidden(err) != c.fails || !c.fails && err != nil {
				t.Errorf("error %v", err)
			}
			if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil || c.fails != (len(request.Status.Conditions) == 0) {
				t.Errorf("conditions %+v, %v", request.Status.Conditions, err)
			}
			if c.role != nil && recorded(t, h.client) != c.want {
				t.Errorf("the record is %q", recorded(t, h.client))
			}
		})
	}
}
