package hubcmd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/internal/testing/regtest"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// claimHub is a hub with a driver that is slow to revoke, as AWS is.
type claimHub struct {
	t        *testing.T
	fake     client.WithWatch
	hub      *hub.Hub
	approves bool
	during   func() // runs while the driver revokes
	granted  []string
}

func (*claimHub) Name() string                                      { return registration.AuthTypeAWS }
func (*claimHub) Claim(c *ocm.ManagedCluster) (string, bool, error) { return awsirsa.Claim(c) }
func (h *claimHub) Approves(context.Context, *ocm.ManagedCluster, string) (bool, error) {
	return h.approves, nil
}

func (h *claimHub) Grant(_ context.Context, _, claim string) (time.Duration, error) {
	h.granted = append(h.granted, claim)
	return 0, nil
}

func (h *claimHub) Revoke(context.Context, string, string) error {
	if h.during != nil {
		h.during()
	}
	return nil
}

func newClaimHub(t *testing.T) *claimHub {
	t.Helper()
	h := &claimHub{t: t, fake: newHub(t)}
	certificates, err := csr.NewHubDriver(csr.HubDriverOptions{Client: h.fake, Reader: h.fake})
	regtest.Must(t, err)
	h.hub,
		err = hub.New(hub.Options{Client: h.fake, Drivers: []registration.HubDriver{certificates, h},
		Default: certificates.Name()})
	regtest.Must(t, err)
	return h
}

func (h *claimHub) reconcile() {
	h.t.Helper()
	if _, err := h.hub.Reconcile(h.t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Name: "shop"}}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *claimHub) create(arn string, accepted bool) {
	h.t.Helper()
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop",
		Annotations: map[string]string{awsirsa.ARNAnnotation: arn}},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: accepted}}
	regtest.Must(h.t, h.fake.Create(h.t.Context(), cluster))
}

func (h *claimHub) cluster() *ocm.ManagedCluster {
	h.t.Helper()
	cluster := &ocm.ManagedCluster{}
	regtest.Must(h.t, h.fake.Get(h.t.Context(), client.ObjectKey{Name: "shop"}, cluster))
	return cluster
}

func (h *claimHub) edit(change func(*ocm.ManagedCluster)) {
	h.t.Helper()
	cluster := h.cluster()
	change(cluster)
	regtest.Must(h.t, h.fake.Update(h.t.Context(), cluster))
}

// decide runs wid hub accept or wid hub deny.
func (h *claimHub) decide(hub client.Client,
	decide func(*deciding, context.Context, *ocm.ManagedCluster) error) (string, error) {
	h.t.Helper()
	var out strings.Builder
	cmd := newHubAccept()
	cmd.SetOut(&out)
	err := decide(&deciding{cmd: cmd, hub: hub}, h.t.Context(), h.cluster())
	return out.String(), err
}

// A bootstrap user changes the claim of a denied cluster while the hub still
// revokes by the record: accept shows neither of the two.
func TestHubAcceptRefusesAClaimOtherThanTheRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		shows       string
	}{
		"another ARN": {map[string]string{awsirsa.ARNAnnotation: eksAttacker}, eksAttacker},
		"no ARN":      {nil, `auth type "csr"`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newClaimHub(t)
			h.create(eksManaged, true)
			h.reconcile()
			h.edit(func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = false })
			h.edit(func(c *ocm.ManagedCluster) { c.Annotations = tc.annotations })
			h.granted = nil
			h.during = func() {
				out, err := h.decide(h.fake, (*deciding).accept)
				if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUnavailable ||
					!strings.Contains(err.Error(), `still taking away the access of cluster "shop"`) || out != "" {
					t.Errorf("accept says %q, %v", out, err)
				}
			}
			h.reconcile()
			h.during = nil
			h.reconcile()
			if h.cluster().Spec.HubAcceptsClient || len(h.granted) > 0 {
				t.Errorf("the hub granted %q", h.granted)
			}
			if out, err := h.decide(h.fake, (*deciding).accept); err != nil || !strings.Contains(out, tc.shows) ||
				strings.Contains(out, eksManaged) {
				t.Errorf("after the revocation accept says %q, %v", out, err)
			}
		})
	}
}

// The request of another agent comes while the command waits.
func TestHubAcceptRefusesALateRequestOfAnotherAgent(t *testing.T) {
	h := newClaimHub(t)
	shop := cluster("shop", false)
	role := published(shop, registration.Claim{AuthType: registration.AuthTypeCSR})
	role.Annotations[ocm.AgentAnnotation] = "agent1"
	regtest.Must(t, errors.Join(h.fake.Create(t.Context(), shop), h.fake.Create(t.Context(), role)))
	lists, thief := 0, ""
	hub := interceptor.NewClient(h.fake,
		interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			opts ...client.ListOption) error {
			if lists++; lists == 2 {
				thief = regtest.Ask(t, h.fake, asBootstrapUser(h.fake), "shop", "thief")
			}
			return c.List(ctx, list, opts...)
		}})
	out, err := h.decide(hub, (*deciding).accept)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), thief) ||
		!strings.Contains(err.Error(), `"agent1"`) {
		t.Errorf("accept says %q, %v", out, err)
	}
	if requests := regtest.RequestsOf(t, h.fake, "shop"); len(requests) != 1 || len(requests[0].Status.Conditions) > 0 {
		t.Errorf("the requests are %+v", requests)
	}
}

// What the hub still revokes by is no obstacle if the cluster claims the same
// as before.
func TestHubAcceptsTheSameClaimDuringRevocation(t *testing.T) {
	h := newClaimHub(t)
	h.create(eksManaged, true)
	h.reconcile()
	h.edit(func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	h.during = func() {
		if out, err := h.decide(h.fake, (*deciding).accept); err != nil || !strings.Contains(out, eksManaged) {
			t.Errorf("accept says %q, %v", out, err)
		}
	}
	h.reconcile()
}

// A cluster that the hub refused was never accepted, so nothing but the
// condition keeps the hub from approving it.
func TestHubDenyLastsForARefusedCluster(t *testing.T) {
	h := newClaimHub(t)
	h.approves = true
	h.create("foo", true)
	h.reconcile()
	if c := conditionOf(h.cluster(), ocm.ConditionHubAccepted); c.Status != "False" || c.Reason != "InvalidClaim" {
		t.Fatalf("the condition is %+v", c)
	}
	h.backdate(2 * time.Hour)
	conflicts := 0
	hub := interceptor.NewClient(h.fake,
		interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
			p client.Patch, opts ...client.SubResourcePatchOption) error {
			if conflicts++; conflicts == 1 { // the hub reports at the same time
				h.reconcile()
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}})
	if out, err := h.decide(hub, (*deciding).deny); err != nil ||
		!strings.Contains(out, `cluster "shop" denied: the hub had not let it in`) {
		t.Errorf("deny says %q, %v", out, err)
	}
	h.edit(func(c *ocm.ManagedCluster) { c.Annotations[awsirsa.ARNAnnotation] = eksAttacker })
	h.reconcile()
	if h.cluster().Spec.HubAcceptsClient || len(h.granted) > 0 {
		t.Errorf("the hub granted %q", h.granted)
	}
	if denied := meta.FindStatusCondition(h.cluster().Status.Conditions, ocm.ConditionHubAccepted); denied == nil ||
		denied.Reason != ocm.ReasonHubDenied || time.Since(denied.LastTransitionTime.Time) > time.Hour {
		t.Errorf("the condition is %+v", denied)
	}
}

func (h *claimHub) backdate(ago time.Duration) {
	h.t.Helper()
	cluster := h.cluster()
	for i := range cluster.Status.Conditions {
		cluster.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-ago))
	}
	regtest.Must(h.t, h.fake.Status().Update(h.t.Context(), cluster))
}

func TestHubDenyFailsIfTheHubAcceptsMeanwhile(t *testing.T) {
	h := newClaimHub(t)
	h.create(eksManaged, false)
	hub := interceptor.NewClient(h.fake,
		interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
			...client.SubResourcePatchOption) error {
			h.edit(func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = true })
			return apierrors.NewConflict(ocm.GroupVersion.WithResource("managedclusters").GroupResource(), "shop",
				errors.New("changed"))
		}})
	out, err := h.decide(hub, (*deciding).deny)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUnavailable ||
		!strings.Contains(err.Error(), `cluster "shop" was accepted meanwhile; run the command again`) || out != "" {
		t.Errorf("deny says %q, %v", out, err)
	}
}

func TestHubDenySaysWhatItDoes(t *testing.T) {
	h := newClaimHub(t)
	h.create(eksManaged, false)
	for _, want := range []string{"it was not accepted, and the hub no longer accepts it automatically",
		`cluster "shop" is denied already`} {
		if out, err := h.decide(h.fake, (*deciding).deny); err != nil || !strings.Contains(out, want) {
			t.Errorf("deny says %q, %v, want %s", out, err, want)
		}
	}
	h.approves = true
	h.reconcile()
	if h.cluster().Spec.HubAcceptsClient {
		t.Error("approved after the denial")
	}
}

// The hub retries a grant that failed, so the wait goes on. Other refusals end
// it.
func TestHubAcceptWaitsWhileTheHubRetries(t *testing.T) {
	for reason, waits := range map[string]bool{ocm.ReasonGrantFailed: true, "InvalidClaim": false} {
		t.Run(reason, func(t *testing.T) {
			h := newClaimHub(t)
			h.create(eksManaged, true)
			cluster := h.cluster()
			cluster.Status.Conditions = []metav1.Condition{{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
				Reason:  reason,
				Message: "AccessDenied of IAM", ObservedGeneration: cluster.Generation, LastTransitionTime: metav1.Now()}}
			regtest.Must(t, h.fake.Status().Update(t.Context(), cluster))
			waitingFor, err := (&acceptance{deciding: &deciding{cmd: newHubAccept(), hub: h.fake}, cluster: cluster}).joined(
				t.Context())
			if (err == nil) != waits || strings.Contains(waitingFor, "AccessDenied of IAM") != waits {
				t.Errorf("waits %q, %v", waitingFor, err)
			}
		})
	}
}

func TestHubStatusSaysWhyAClusterIsNotIn(t *testing.T) {
	for name, tc := range map[string]struct {
		accepted     bool
		condition    metav1.ConditionStatus
		reason, want string
	}{
		"new":                          {false, "", "", "false (waiting)"},
		"refusal mended":               {false, "False", ocm.ReasonWaiting, "false (waiting)"},
		"refused before acceptance":    {false, "False", "InvalidClaim", "false (InvalidClaim)"},
		"denied":                       {false, "False", ocm.ReasonHubDenied, "false (denied)"},
		"denied, hub has not acted":    {false, "True", ocm.ReasonHubAccepted, "false (the hub has not acted yet)"},
		"accepted":                     {true, "True", ocm.ReasonHubAccepted, "true"},
		"accepted, claim changed":      {true, "True", ocm.ReasonClaimChanged, "true (ClaimChanged)"},
		"accepted, grant failed":       {true, "False", ocm.ReasonGrantFailed, "true (GrantFailed)"},
		"accepted, hub has not acted":  {true, "", "", "true (the hub has not acted yet)"},
		"accepted again after refusal": {true, "False", ocm.ReasonHubDenied, "true (the hub has not acted yet)"},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := []metav1.Condition{{Type: ocm.ConditionJoined, Status: "True"},
				{Type: ocm.ConditionAvailable, Status: "Unknown"},
				{Type: ocm.ConditionHubAccepted, Status: tc.condition, Reason: tc.reason}}
			if tc.reason == "" {
				conditions = conditions[:2]
			}
			shown := cluster("shop", tc.accepted, conditions...)
			c := clusterOf(shown, published(shown, registration.Claim{AuthType: "csr", Value: eksManaged}), nil, nil)
			var out strings.Builder
			statusTable(&out, []Cluster{c})
			want := tc.want + " - -"
			if tc.accepted {
				want = tc.want + " True Unknown"
			}
			if fields := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(fields, "shop csr "+want+" ") ||
				!strings.HasSuffix(fields, eksManaged) {
				t.Errorf("status is\n%s, want %s", out.String(), want)
			}
		})
	}
}

// published returns the ClusterRole in which the hub publishes what a cluster
// claims.
func published(c *ocm.ManagedCluster, claim registration.Claim) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName(c.Name),
		Labels: map[string]string{ocm.ClusterNameLabel: c.Name}}}
	registration.PublishClaim(role, c, claim)
	return role
}

// A table shows the reason, the other outputs also the message. Neither shows
// the record of a cluster that is not accepted.
func TestHubStatusShowsMessageAndCurrentClaim(t *testing.T) {
	h := newClaimHub(t)
	h.create(eksManaged, true)
	h.reconcile()
	h.edit(func(c *ocm.ManagedCluster) { c.Annotations[awsirsa.ARNAnnotation] = eksAttacker })
	h.reconcile()
	shows := func(claim, message string, acted bool) {
		t.Helper()
		all, err := clustersOf(t.Context(), h.fake)
		if err != nil || len(all) != 1 || all[0].Claim != claim || all[0].Acted != acted ||
			!strings.Contains(all[0].Message, message) {
			t.Errorf("status shows %+v, %v, want %q", all, err, claim)
		}
	}
	shows(eksManaged, "keeps that; its annotations now say", true)
	h.edit(func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	shows("", "keeps that; its annotations now say", false)
	h.reconcile()
	shows(eksAttacker, "denied", true)
}

// An agent whose request was denied asks no more, and waits.
func TestHubStatusShowsDeniedRequests(t *testing.T) {
	for want, c := range map[string]Cluster{
		"0":           {},
		"0, 1 denied": {DeniedRequests: make([]AgentRequest, 1)},
		"1 (SeveralRequests), 2 denied": {PendingRequests: []AgentRequest{{Reason: "SeveralRequests"}},
			DeniedRequests: make([]AgentRequest, 2)},
	} {
		if got := requests(&c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestHubStatusOfADeletedCluster(t *testing.T) {
	if got := accepted(&Cluster{Accepted: true, Deleting: true, Acted: true,
		Reason: ocm.ReasonHubAccepted}); got != "true (deleting)" {
		t.Errorf("status is %q", got)
	}
}

// An error that the hub retries is shown wherever a command waits for the hub.
func TestCommandsShowTheErrorOfTheHub(t *testing.T) {
	for name, accepts := range map[string]bool{"accept": true, "deny": false} {
		t.Run(name, func(t *testing.T) {
			fails := metav1.Condition{Type: ocm.ConditionReconciled, Status: metav1.ConditionFalse, Reason: "ReconcileFailed",
				Message: "policy says\nno"}
			before := metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue,
				Reason: ocm.ReasonHubAccepted}
			if accepts {
				before = denied(time.Hour)
			}
			c := cluster("shop", accepts, before, fails)
			hub := newHub(t, c)
			d := &deciding{cmd: newHubAccept(), hub: hub}
			wait := func(ctx context.Context) (string, error) { return d.revoking(ctx, "shop") }
			if accepts {
				wait = (&acceptance{deciding: d, cluster: c}).joined
			}
			if waitingFor, err := wait(t.Context()); err != nil || !strings.Contains(waitingFor, "policy says no") {
				t.Errorf("waits %q, %v", waitingFor, err)
			}
			all, err := clustersOf(t.Context(), hub)
			regtest.Must(t, err)
			var table strings.Builder
			if statusTable(&table, all); all[0].Failure != "policy says no" ||
				!strings.Contains(table.String(), "the hub has not acted yet; error: policy says no") {
				t.Errorf("status is %+v:\n%s", all, table.String())
			}
		})
	}
}

// A denial that the hub has not acted on leaves the access. The command says so
// at once, and waits for the hub if it is asked to.
func TestHubDenySaysWhetherTheHubHasActed(t *testing.T) {
	for name, row := range map[string]struct {
		acts bool
		flag []string
		says string
		code int
	}{
		"the hub acts":         {true, nil, "has taken away its access. A client certificate stays valid until", 0},
		"it does not":          {false, nil, "denied; the hub has not acted yet, the cluster still has access", 0},
		"waiting, it acts":     {true, []string{"--wait"}, "has taken away its access", 0},
		"waiting, it does not": {false, []string{"--wait"}, "", cli.ExitUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newClaimHub(t)
				h.create(eksManaged, true)
				h.reconcile()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				d, said := deciderOf(t, h.fake, row.flag...)
				regtest.Must(t, d.deny(ctx, h.cluster()))
				if row.acts {
					h.reconcile()
				}
				err := d.revoked(ctx)
				if row.code != 0 {
					expectFailure(t, err, row.code, "gave up waiting for the hub program to take away the access")
				} else if err != nil || !strings.Contains(said.String(), row.says) {
					t.Errorf("deny says %q, %v, want %q", said, err, row.says)
				}
			})
		})
	}
}
