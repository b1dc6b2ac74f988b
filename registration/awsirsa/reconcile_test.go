package awsirsa_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// hubEnvironment is a whole hub, with an API server from memory.
type hubEnvironment struct {
	t     *testing.T
	cloud *cloud
	iam   awsirsa.IAM // that the hub calls, usually the cloud
	kube  client.Client
	hub   *hub.Hub
}

func newHubEnvironment(t *testing.T, patterns ...string) *hubEnvironment {
	t.Helper()
	w := &hubEnvironment{t: t, cloud: newCloud()}
	w.iam = w.cloud
	w.kube = fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithStatusSubresource(
		&ocm.ManagedCluster{}).WithInterceptorFuncs(w.interceptors()).Build()
	w.restart(patterns...)
	return w
}

// interceptors fail all writes of a hub that is dead, and note when it removes
// the ClusterRoleBinding.
func (w *hubEnvironment) interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if w.cloud.dead() {
				return errDead
			}
			if _, ok := o.(*rbacv1.ClusterRoleBinding); ok {
				w.cloud.record("unbind") // in the order of the calls of AWS
			}
			return c.Delete(ctx, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if w.cloud.dead() {
				return errDead
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			if w.cloud.dead() {
				return errDead
			}
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, part string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if w.cloud.dead() {
				return errDead
			}
			return c.SubResource(part).Patch(ctx, o, p, opts...)
		},
	}
}

func (w *hubEnvironment) restart(patterns ...string) {
	w.t.Helper()
	driver := newHub(w.t, w.cloud, func(o *awsirsa.HubDriverOptions) {
		o.AutoApprove, o.IAM, o.MaxRoles = patterns, w.iam, 5000
	})
	var err error
	w.hub, err = hub.New(hub.Options{Client: w.kube, Drivers: []registration.HubDriver{driver}})
	regtest.Must(w.t, err)
}

func (w *hubEnvironment) get(name string) *ocm.ManagedCluster {
	w.t.Helper()
	cluster := &ocm.ManagedCluster{}
	regtest.Must(w.t, w.kube.Get(w.t.Context(), client.ObjectKey{Name: name}, cluster))
	return cluster
}

func (w *hubEnvironment) create(name, arn string, accepted bool) {
	w.t.Helper()
	w.join(name, map[string]string{awsirsa.ARNAnnotation: arn}, accepted)
}

func (w *hubEnvironment) join(name string, annotations map[string]string, accepted bool) {
	w.t.Helper()
	regtest.Must(w.t,
		w.kube.Create(w.t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: ocm.ManagedClusterSpec{HubAcceptsClient: accepted}}))
	w.reconcile(name)
}

// edit changes a cluster while the hub does not look.
func (w *hubEnvironment) edit(name string, change func(*ocm.ManagedCluster)) {
	w.t.Helper()
	cluster := w.get(name)
	change(cluster)
	regtest.Must(w.t, w.kube.Update(w.t.Context(), cluster))
}

func (w *hubEnvironment) update(name string, change func(*ocm.ManagedCluster)) {
	w.t.Helper()
	w.edit(name, change)
	w.reconcile(name)
}

func (w *hubEnvironment) delete(name string) {
	w.t.Helper()
	regtest.Must(w.t, w.kube.Delete(w.t.Context(), w.get(name)))
}

// reconcile returns the condition. Errors are what the condition says.
func (w *hubEnvironment) reconcile(name string) {
	_, _ = w.hub.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
}

func (w *hubEnvironment) accepted(name string) metav1.Condition {
	w.t.Helper()
	if c := meta.FindStatusCondition(w.get(name).Status.Conditions, ocm.ConditionHubAccepted); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// The hourly look repairs what has drifted.
func TestResyncMakesNoCallWithinAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHubEnvironment(t)
		w.create("shop1", managedARN, true)
		checkGranted(t, w.cloud)
		w.cloud.reset()
		for range 10 {
			w.reconcile("shop1")
		}
		if len(w.cloud.calls) > 0 {
			t.Errorf("calls %q", w.cloud.calls)
		}
		w.cloud.newRole(shopRole(t), w.cloud.roles[shopRole(t)].tags, "{}") // drift: deleted and made again by another
		time.Sleep(time.Hour)                                               // of the test's own clock
		w.reconcile("shop1")
		checkGranted(t, w.cloud)
		w.cloud.reset()
		time.Sleep(time.Hour)
		w.reconcile("shop1")
		if len(w.cloud.calls) != 3 || w.cloud.writes > 0 {
			t.Errorf("after another hour: calls %q", w.cloud.calls)
		}
	})
}

func TestRevocationRemovesTheRBACFirst(t *testing.T) {
	w := newHubEnvironment(t)
	w.create("shop1", managedARN, true)
	w.cloud.reset()
	w.update("shop1", func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	if want := []string{"unbind", "DescribeAccessEntry", "DeleteAccessEntry", "GetRole", "DeleteRolePolicy",
		"DeleteRole"}; !slices.Equal(w.cloud.calls, want) {
		t.Errorf("calls %q", w.cloud.calls)
	}
	checkNothingLeft(t, w.cloud)
	if c := w.accepted("shop1"); c.Status != metav1.ConditionFalse || c.Reason != ocm.ReasonHubDenied {
		t.Errorf("condition %+v", c)
	}
}

// A cluster that rewrites its claim keeps what it was accepted with, and its
// departure touches nothing of the other cluster.
func TestRewrittenClaimReachesNothingOfAnotherCluster(t *testing.T) {
	const victimARN = "arn:aws:eks:eu-west-1:333333333333:cluster/victim"
	owner, victim := mustParse(t, hubARN), mustParse(t, victimARN)
	for name, annotations := range map[string]map[string]string{
		"ARN of another": {awsirsa.ARNAnnotation: victimARN},
		"suffix of another": {awsirsa.OCMARNAnnotation: managedARN,
			awsirsa.OCMSuffixAnnotation: awsirsa.RoleSuffix(owner, victim)},
		"ARN and suffix of another": {awsirsa.OCMARNAnnotation: victimARN,
			awsirsa.OCMSuffixAnnotation: awsirsa.RoleSuffix(owner, victim)},
		"no ARN":                           {},
		"empty ARN":                        {awsirsa.ARNAnnotation: ""},
		"ARN of another, with extra slash": {awsirsa.ARNAnnotation: victimARN + "/x"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHubEnvironment(t)
			w.create("victim1", victimARN, true)
			w.create("shop1", managedARN, true)
			role := w.cloud.roles[awsirsa.GrantedRoleName(owner, victim)]
			before := maps.Clone(role.tags)
			w.update("shop1", func(c *ocm.ManagedCluster) { c.Annotations = annotations })
			checkGranted(t, w.cloud)
			if c := w.accepted("shop1"); c.Status != metav1.ConditionTrue || c.Reason != ocm.ReasonClaimChanged {
				t.Errorf("condition %+v", c)
			}
			w.update("shop1", func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = false })
			if w.cloud.roles[awsirsa.GrantedRoleName(owner, victim)] != role || !maps.Equal(role.tags, before) ||
				len(w.cloud.groups(awsirsa.GrantedRoleName(owner, victim))) != 1 {
				t.Error("the other cluster's role has changed")
			}
			if len(w.cloud.roles) != 1 {
				t.Errorf("roles %v", w.cloud.roles)
			}
		})
	}
}
