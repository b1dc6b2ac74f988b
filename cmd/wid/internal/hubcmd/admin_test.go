package hubcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// fakeHub builds a hub that has the objects.
func fakeHub(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	b := fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithStatusSubresource(&ocm.ManagedCluster{}).WithObjects(
		objects...).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} })
	for field, value := range map[string]func(*eventsv1.Event) string{
		"type":           func(e *eventsv1.Event) string { return e.Type },
		"regarding.kind": func(e *eventsv1.Event) string { return e.Regarding.Kind },
	} {
		b = b.WithIndex(&eventsv1.Event{}, field, func(o client.Object) []string {
			return []string{value(o.(*eventsv1.Event))} //nolint:errcheck,forcetypeassert // a wrong type panics
		})
	}
	return b
}

func newHub(t *testing.T, objects ...client.Object) client.WithWatch {
	return fakeHub(t, objects...).Build()
}

func cluster(name string, accepted bool, conditions ...metav1.Condition) *ocm.ManagedCluster {
	return &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:   ocm.ManagedClusterSpec{HubAcceptsClient: accepted},
		Status: ocm.ManagedClusterStatus{Conditions: conditions}}
}

func denied(ago time.Duration) metav1.Condition {
	return metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: ocm.ReasonHubDenied,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second))}
}

func TestClustersSaysWhatKeepsADeletedOne(t *testing.T) {
	now := metav1.Now()
	c := cluster("shop", true,
		metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: ocm.ReasonHubAccepted},
		metav1.Condition{Type: ocm.ConditionDeleting, Status: metav1.ConditionFalse, Message: "an add-on\nis left"})
	c.DeletionTimestamp, c.Finalizers = &now, []string{ocm.Finalizer}
	all, err := clustersOf(t.Context(), newHub(t, c))
	if err != nil || len(all) != 1 || !all[0].Deleting || all[0].Message != "an add-on is left" ||
		all[0].Condition != "True" {
		t.Errorf("got %+v, %v", all, err)
	}
}

// Requests of a cluster that an administrator or the hub denied stay visible,
// with the reason.
func TestClustersHasDeniedRequests(t *testing.T) {
	c := newHub(t, cluster("shop", false))
	for agent, condition := range map[string]certificatesv1.RequestConditionType{"a": certificatesv1.CertificateDenied,
		"b": certificatesv1.CertificateFailed} {
		r := &certificatesv1.CertificateSigningRequest{}
		name := regtest.Ask(t, c, askedBy(c, "alice"), "shop", agent)
		regtest.Must(t, c.Get(t.Context(), client.ObjectKey{Name: name}, r))
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: condition, Status: "True",
			Reason: "KubectlDeny", Message: "not\nours"}}
		regtest.Must(t, c.Status().Update(t.Context(), r))
	}
	all, err := clustersOf(t.Context(), c)
	if err != nil || len(all) != 1 || len(all[0].PendingRequests) != 0 || len(all[0].DeniedRequests) != 1 {
		t.Fatalf("got %+v, %v", all, err)
	}
	got := all[0].DeniedRequests[0]
	if want := (AgentRequest{Name: got.Name, User: "alice", Reason: "KubectlDeny", Message: "not ours"}); got != want {
		t.Errorf("got %+v", all)
	}
}

// The denial of a refused cluster begins now. The one that the hub has recorded
// keeps its time.
func TestRecordDenial(t *testing.T) {
	refused := denied(time.Hour)
	refused.Reason = "InvalidClaim"
	for name, row := range map[string]struct {
		cluster *ocm.ManagedCluster
		fresh   bool
	}{
		"refused": {cluster("shop", false, refused), true},
		"denied":  {cluster("shop", false, denied(time.Hour)), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newHub(t, row.cluster)
			got := &ocm.ManagedCluster{}
			regtest.Must(t, c.Get(t.Context(), client.ObjectKey{Name: "shop"}, got))
			regtest.Must(t, recordDenial(t.Context(), c, got))
			regtest.Must(t, c.Get(t.Context(), client.ObjectKey{Name: "shop"}, got))
			if s := stateOf(got, nil); s.Stage != registration.StageDenied || (time.Since(s.Since) < time.Minute) != row.fresh {
				t.Errorf("the conditions are %+v", got.Status.Conditions)
			}
		})
	}
}

// askedBy fills in the requester, as an API server does.
func askedBy(c client.WithWatch, user string, groups ...string) client.Client {
	return interceptor.NewClient(c,
		interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
			opts ...client.CreateOption) error {
			if r, ok := o.(*certificatesv1.CertificateSigningRequest); ok {
				r.Spec.Username, r.Spec.Groups = user, groups
			}
			return c.Create(ctx, o, opts...)
		}})
}

const bootstrapUser = "system:bootstrap:abcdef"

func asBootstrapUser(c client.WithWatch) client.Client {
	return askedBy(c, bootstrapUser, registration.BootstrapGroup)
}

// Only the request that is beyond doubt is picked without its name.
func TestRequest(t *testing.T) {
	const csr, aws = registration.AuthTypeCSR, registration.AuthTypeAWS
	bootstrap := func(c client.WithWatch) string { return regtest.Ask(t, c, asBootstrapUser(c), "shop", "agent1") }
	stranger := func(c client.WithWatch) string { return regtest.Ask(t, c, askedBy(c, "alice"), "shop", "agent2") }
	by := func(user string, groups ...string) []func(client.WithWatch) string {
		return []func(client.WithWatch) string{func(c client.WithWatch) string {
			return regtest.Ask(t, c, askedBy(c, user, append(groups, "system:masters")...), "shop", "agent1")
		}}
	}
	works := cluster("shop", true, metav1.Condition{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue},
		metav1.Condition{Type: ocm.ConditionAvailable, Status: metav1.ConditionTrue})
	for name, row := range map[string]struct {
		cluster  *ocm.ManagedCluster
		recorded string // name of the agent
		authType string
		ask      []func(client.WithWatch) string
		named    bool // the last request is
		refusal  string
		picks    bool
	}{
		"none":                    {authType: csr},
		"one of a bootstrap user": {authType: csr, ask: []func(client.WithWatch) string{bootstrap}, picks: true},
		"one of the ServiceAccount": {authType: csr, ask: by(regtest.BootstrapUser, "system:serviceaccounts"),
			picks: true},
		"one of a node": {authType: csr, ask: by("system:node:n1", "system:nodes"),
			refusal: `of user "system:node:n1"`},
		"one of the agent, a renewal": {authType: csr,
			ask: by(registration.AgentUser("shop", "agent1"), registration.ClusterGroup("shop"))},
		"one of another user": {authType: csr, ask: []func(client.WithWatch) string{
			stranger}, refusal: `the request of cluster "shop" is not that of a bootstrap user`},
		"one of another user, named": {authType: csr, ask: []func(client.WithWatch) string{
			stranger}, named: true, picks: true},
		"two": {authType: csr, ask: []func(client.WithWatch) string{
			stranger, bootstrap},
			refusal: `cluster "shop" has 2 requests, usually since its agent restarted before it was accepted`},
		"two, with their lines": {authType: csr, ask: []func(client.WithWatch) string{
			stranger, bootstrap}, refusal: "old, of user \"system:bootstrap:abcdef\""},
		"two, one is named": {authType: csr, ask: []func(client.WithWatch) string{
			stranger, bootstrap}, named: true, picks: true},
		"the agent works": {cluster: works, authType: csr, ask: []func(client.WithWatch) string{
			bootstrap}, refusal: `cluster "shop" has an agent already`},
		"the agent works, named": {cluster: works, authType: csr, ask: []func(client.WithWatch) string{
			bootstrap}, named: true, picks: true},
		"another agent is recorded": {recorded: "agent9", authType: csr, ask: []func(client.WithWatch) string{
			bootstrap}, refusal: `cluster "shop" has an agent already`},
		"a cluster with an ARN": {authType: aws, ask: []func(client.WithWatch) string{bootstrap}},
		"a cluster with an ARN, named": {authType: aws, ask: []func(client.WithWatch) string{
			bootstrap}, named: true, refusal: `of cluster "shop" waits for approval`},
		"none with that name": {authType: csr, ask: []func(client.WithWatch) string{
			func(client.WithWatch) string { return "x" }}, named: true, refusal: `of cluster "shop" waits for approval`},
	} {
		t.Run(name, func(t *testing.T) {
			if row.cluster == nil {
				row.cluster = cluster("shop", false)
			}
			c := newHub(t)
			if row.recorded != "" {
				role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName("shop"),
					Annotations: map[string]string{ocm.AgentAnnotation: row.recorded}}}
				regtest.Must(t, c.Create(t.Context(), role))
			}
			last, named := "", ""
			for _, ask := range row.ask {
				last = ask(c)
			}
			if row.named {
				named = last
			}
			a := &acceptance{deciding: &deciding{hub: c, approves: named}, cluster: row.cluster,
				claim: registration.Claim{AuthType: row.authType}}
			err := a.readRequest(t.Context())
			if (err != nil) != (row.refusal != "") ||
				err != nil && (!strings.Contains(err.Error(), row.refusal) ||
					!row.named && !strings.Contains(err.Error(), "--approve-request") ||
					!slices.Contains([]int{cli.ExitDenied, cli.ExitMisconfigured}, cli.ExitCode(t.Context(), err))) {
				t.Fatalf("got %v, want %q", err, row.refusal)
			}
			if (a.request != nil) != row.picks || a.request != nil && a.request.Object.Name != last {
				t.Errorf("picked %+v", a.request)
			}
		})
	}
}

// The lines of several requests, the newest first, tell agents of one name
// apart by their keys.
func TestRequesters(t *testing.T) {
	c := newHub(t)
	for _, agent := range []string{"stable", "stable", "a2", "a3", "a4", "a5", "a6"} {
		regtest.Ask(t, c, asBootstrapUser(c), "shop", agent)
	}
	pending, err := csr.List(t.Context(), c, "shop", (*csr.Request).IsPending)
	regtest.Must(t, err)
	age := map[string]time.Duration{"stable": time.Minute, "a2": time.Hour, "a3": 2 * time.Hour, "a4": 3 * time.Hour,
		"a5": 4 * time.Hour, "a6": 5 * time.Hour}
	var want []string
	for _, r := range pending {
		r.Object.CreationTimestamp = metav1.NewTime(time.Now().Add(-age[r.Agent] - time.Second))
		age[r.Agent] += time.Minute // of the other one of that name
	}
	slices.SortFunc(pending, func(a, b *csr.Request) int {
		return a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time)
	})
	newest := slices.Clone(pending)
	slices.Reverse(newest)
	for i, shown := range []string{"stable|1m", "stable|2m", "a2|1h", "a3|2h", "a4|3h"} {
		agent, old, _ := strings.Cut(shown, "|")
		want = append(want, fmt.Sprintf("\n  request %q: agent %q with key %s, %s old, of user %q", newest[i].Object.Name,
			agent, newest[i].Key[:8], old, bootstrapUser))
	}
	if got := requesters(pending); got != strings.Join(want, "")+"\n  and 2 more" {
		t.Errorf("got %s\nwant %s", got, strings.Join(want, ""))
	}
}

func TestChangedFlags(t *testing.T) {
	for name, tc := range map[string]struct{ running, next, want []string }{
		"the same":      {[]string{"--a=1", "--b"}, []string{"--b", "--a=1"}, nil},
		"one more":      {[]string{"--a=1"}, []string{"--a=1", "--b"}, nil},
		"another value": {[]string{"--a=1"}, []string{"--a=2"}, []string{"--a=1 becomes --a=2"}},
		"no value":      {[]string{"--a"}, []string{"--a=false"}, []string{"--a becomes --a=false"}},
		"dropped":       {[]string{"--a=1", "--b"}, nil, []string{"--a=1 is dropped", "--b is dropped"}},
		"repeated":      {[]string{"--a=1", "--a=2"}, []string{"--a=1,2"}, nil},
		"two words":     {[]string{"--a", "1"}, []string{"--a=1"}, nil},
		"value with =":  {[]string{"--a=b=c"}, []string{"--a=b"}, []string{"--a=b=c becomes --a=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changedFlags(flagsIn(tc.running), flagsIn(tc.next)); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

const (
	eksHub      = "arn:aws:eks:eu-central-1:123456789012:cluster/hub"
	eksManaged  = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
	eksAttacker = "arn:aws:eks:eu-west-1:666666666666:cluster/evil"
)

// A hub that signs no client certificates, such as Amazon EKS, is told apart
// from one that cannot be asked.
func TestHubInitProbes(t *testing.T) {
	for want, answer := range map[string]func(*certificatesv1.CertificateSigningRequest) error{
		`warning: clusters cannot register with auth type csr: the hub does not sign client certificates: the request is Failed, reason "SignerValidationFailure"`: func(csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure"})
			return nil
		},
		"warning: it is not known whether the hub signs client certificates: approve CertificateSigningRequest": func(
			*certificatesv1.CertificateSigningRequest) error {
			return apierrors.NewForbidden(certificatesv1.Resource("certificatesigningrequests"), "x", nil)
		},
	} {
		c := fakeHub(t).WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, o client.Object,
				_ ...client.SubResourceUpdateOption) error {
				csr, ok := o.(*certificatesv1.CertificateSigningRequest)
				if !ok {
					return errors.New("not a request")
				}
				if err := answer(csr); err != nil {
					return err
				}
				return c.Status().Update(ctx, csr)
			}}).Build()
		var out bytes.Buffer
		cmd := NewHubInit()
		cmd.SetErr(&out)
		(&hubInit{}).probe(t.Context(), cmd, c)
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}
