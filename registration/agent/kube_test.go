package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// agentKube is a cluster whose agent uses the driver of another project. The
// test plays the hub's controller.
type agentKube struct {
	*regtest.Member
	status bool // agent.Options.ClusterStatus
}

func newAgentKube(t *testing.T, cluster string) *agentKube {
	t.Helper()
	return &agentKube{Member: regtest.New(t).NewMember(cluster, "registration-agent")}
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

// as returns a client of the hub with a token.
func (k *agentKube) as(token string) client.Client {
	k.T.Helper()
	return regtest.NewClient(k.T, regtest.WithToken(k.Hub.Config(), token))
}

func (k *agentKube) create(obj client.Object) {
	k.T.Helper()
	if err := k.Admin.Create(k.T.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
		k.T.Fatal(err)
	}
}

// account creates the ServiceAccount that the driver uses on the hub, with its
// namespace.
func (k *agentKube) account() {
	k.T.Helper()
	k.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.Name}})
	k.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: "agent"}})
}

// there is the user of that ServiceAccount.
func (k *agentKube) there() string { return "system:serviceaccount:" + k.Name + ":agent" }

// accept does what an administrator and the hub's controller do.
func (k *agentKube) accept() {
	k.T.Helper()
	k.account()
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	name := registration.ClusterRoleName(k.Name)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: k.Name, Name: "agent"}}
	k.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		rule(ocm.GroupVersion.Group, "managedclusters", "get", "patch"),
		rule(ocm.GroupVersion.Group, "managedclusters/status", "patch"),
		// A ServiceAccount is not in the cluster's group, by which the policies
		// know the cluster itself.
		{APIGroups: []string{ocm.GroupVersion.Group}, Resources: []string{"managedclusters/accept"},
			Verbs: []string{"update"}, ResourceNames: []string{k.Name}}}})
	k.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
	k.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: "agent"},
		Rules: []rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "get", "update")}})
	k.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: ocm.LeaseName}})
	k.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: "agent"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"}})
	cluster := k.Cluster(k.Name)
	base := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient, cluster.Spec.LeaseDurationSeconds = true, 1
	regtest.Must(k.T, k.Admin.Patch(k.T.Context(), cluster, client.MergeFrom(base)))
	base = cluster.DeepCopy()
	meta.SetStatusCondition(&cluster.Status.Conditions,
		metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: ocm.ReasonHubAccepted})
	regtest.Must(k.T, k.Admin.Status().Patch(k.T.Context(), cluster, client.MergeFrom(base)))
}

// renewed returns when the Lease was last renewed.
func (k *agentKube) renewed() time.Time {
	lease := &coordinationv1.Lease{}
	if err := k.Admin.Get(k.T.Context(), client.ObjectKey{Namespace: k.Name, Name: ocm.LeaseName}, lease); err != nil ||
		lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

func (k *agentKube) event(reason string) bool {
	var list eventsv1.EventList
	regtest.Must(k.T, k.Local.List(k.T.Context(), &list, client.InNamespace(k.Namespace)))
	for _, e := range list.Items {
		if e.Reason == reason {
			return true
		}
	}
	return false
}

// process is a new process of the agent.
func (k *agentKube) process(recorder events.EventRecorder) {
	k.T.Helper()
	environment, config := *k.Environment, k.Config() // the agent's goroutine reads no T that a Step changes
	driver := &sharedToken{asked: map[string]bool{}, issue: func(string) string {
		return environment.Token(environment.Admin, k.Name, "agent")
	}}
	k.Start(agent.Options{Driver: driver, Recorder: recorder, ClusterStatus: k.status,
		Version: func(context.Context) (string, error) {
			d, err := discovery.NewDiscoveryClientForConfig(config)
			if err != nil {
				return "", err
			}
			info, err := d.ServerVersion()
			if err != nil {
				return "", err
			}
			return info.GitVersion, nil
		}})
}

// run starts the agent under a manager and returns a function that ends it.
func (k *agentKube) run() (stop func()) {
	k.T.Helper()
	return k.Run(func(mgr ctrl.Manager) { k.process(mgr.GetEventRecorder("registration-agent")) })
}

// The agent records Events with the RBAC of AgentRBAC, also before it has a
// credential, and finds that the API server refuses one.
func TestAgentOnTwoAPIServers(t *testing.T) {
	k := newAgentKube(t, "cluster1")
	regtest.Must(t,
		k.Local.Delete(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: agent.DefaultBootstrapSecret}}))
	stop := k.run()
	kubetest.Eventually(t, "there is an Event about the missing bootstrap Secret", func() bool {
		return k.event(agent.ReasonCredentialRefused)
	})
	k.WriteBootstrap(k.Hub.Config().Host, k.Hub.Config().CAData)
	kubetest.Eventually(t, "the agent creates a ManagedCluster", func() bool { return k.Cluster(k.Name).Name != "" })
	kubetest.Eventually(t, "there is an Event about the driver's condition", func() bool {
		return k.event("NotAccepted")
	})
	k.accept()
	kubetest.Eventually(t, "the cluster joins", func() bool {
		return k.Joined() && strings.HasPrefix(k.Cluster(k.Name).Status.Version.Kubernetes, "v1.") && !k.renewed().IsZero()
	})
	stop()
	k.revoke(t)
}

// revoke lets a new process find a credential that the hub refuses.
func (k *agentKube) revoke(t *testing.T) {
	t.Helper()
	const refused = "no token of the hub"
	if err := k.as(refused).Get(t.Context(), client.ObjectKey{Name: k.Name},
		&ocm.ManagedCluster{}); !apierrors.IsUnauthorized(err) {
		t.Fatalf("error %v, want Unauthorized", err)
	}
	secret := k.Secret()
	secret.Data["shared"] = []byte(refused)
	regtest.Must(t, k.Local.Update(t.Context(), secret))
	k.process(&regtest.Recorder{})
	if result, err := k.Agent.Reconcile(t.Context(), reconcile.Request{}); err != nil ||
		result.RequeueAfter != time.Second {
		t.Errorf("back after %s, %v, want 1s", result.RequeueAfter, err)
	}
	if got := string(k.Secret().Data["shared"]); got == refused || got == "" {
		t.Errorf("the credential is %q, want another one", got)
	}
}

// BootstrapRBAC bounds what bootstrap users do to a cluster.
func TestBootstrapUsers(t *testing.T) {
	k := newAgentKube(t, "cluster4")
	// The policy of HubRBAC refuses bootstrap users too, and would hide that of
	// BootstrapRBAC. The next test installs it again.
	regtest.Must(t, k.Admin.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "acceptance.open-cluster-management.io"}}))
	regtest.Must(t,
		k.as(k.Bootstrap).Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: k.Name}}))
	k.tryBootstrapRights(false)
	k.accept()
	k.tryBootstrapRights(true)
}

// tryBootstrapRights tries what bootstrap users may do to a cluster, which is
// to set annotations until it is accepted. One of them is in a group that an
// administrator has bound.
func (k *agentKube) tryBootstrapRights(accepted bool) {
	k.T.Helper()
	k.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-mine"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ocm.BootstrapRole},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers:mine"}}})
	mine := k.As("system:bootstrap:mine00", "system:bootstrappers:mine")
	for _, user := range []client.Client{k.as(k.Bootstrap), mine} {
		k.tryRights(user, accepted)
		k.tryCreate(user)
	}
}

func (k *agentKube) tryCreate(user client.Client) {
	k.T.Helper()
	for what, m := range map[string]metav1.ObjectMeta{
		"label":     {Labels: map[string]string{"a": "b"}},
		"finalizer": {Finalizers: []string{ocm.Finalizer}},
		"owner":     {OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "a", UID: "b"}}},
	} {
		m.Name = "new"
		if err := user.Create(k.T.Context(), &ocm.ManagedCluster{ObjectMeta: m},
			client.DryRunAll); !apierrors.IsInvalid(err) {
			k.T.Errorf("a bootstrap user creates a cluster with a %s: %v", what, err)
		}
	}
	k.create(&unstructured.Unstructured{Object: map[string]any{"apiVersion": ocm.GroupVersion.String(),
		"kind":     "ManagedCluster",
		"metadata": map[string]any{"name": "bare"}}})
	annotate := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
	if err := user.Patch(k.T.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "bare"}},
		annotate); err != nil {
		k.T.Errorf("a bootstrap user annotates a cluster without a spec: %v", err)
	}
}

func (k *agentKube) tryRights(user client.Client, accepted bool) {
	k.T.Helper()
	patch := func(body string) error {
		return user.Patch(k.T.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: k.Name}},
			client.RawPatch("application/merge-patch+json", []byte(body)))
	}
	// The policies take a moment to come and go.
	try := 0
	kubetest.Eventually(k.T, "a bootstrap user may set neither a label nor a finalizer", func() bool {
		try++
		return apierrors.IsInvalid(patch(fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, try))) &&
			apierrors.IsInvalid(patch(`{"metadata":{"finalizers":["example.com/a"]}}`))
	})
	for what, body := range map[string]string{
		"accept or deny": fmt.Sprintf(`{"spec":{"hubAcceptsClient":%t}}`, !accepted),
		"taint":          `{"spec":{"taints":[{"key":"a","effect":"NoSelect"}]}}`,
		"finalizer":      `{"metadata":{"finalizers":["example.com/a"]}}`,
		"owner":          `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"a","uid":"b"}]}}`,
	} {
		if err := patch(body); !apierrors.IsInvalid(err) {
			k.T.Errorf("accepted %t: a bootstrap user may %s: %v", accepted, what, err)
		}
	}
	if err := patch(`{"metadata":{"annotations":{"by":"bootstrap"}}}`); (err == nil) == accepted {
		k.T.Errorf("accepted %t: a bootstrap user sets an annotation: %v", accepted, err)
	}
	if err := user.Delete(k.T.Context(), k.Cluster(k.Name)); !apierrors.IsForbidden(err) {
		k.T.Errorf("a bootstrap user deletes a cluster: %v", err)
	}
}

// setLease changes the duration that the hub asks for, and waits until the
// agent's Lease has it.
func (k *agentKube) setLease(seconds int32) {
	k.T.Helper()
	cluster := k.Cluster(k.Name)
	base := cluster.DeepCopy()
	cluster.Spec.LeaseDurationSeconds = seconds
	regtest.Must(k.T, k.Admin.Patch(k.T.Context(), cluster, client.MergeFrom(base)))
	kubetest.Eventually(k.T, "the agent takes up the duration", func() bool {
		lease := &coordinationv1.Lease{}
		err := k.Admin.Get(k.T.Context(), client.ObjectKey{Namespace: k.Name, Name: ocm.LeaseName}, lease)
		return err == nil && lease.Spec.LeaseDurationSeconds != nil && *lease.Spec.LeaseDurationSeconds == seconds
	})
}

// watches returns the codes of the agent's watches of its ManagedCluster.
func (k *agentKube) watches() (codes []int) {
	k.T.Helper()
	for _, r := range k.Hub.Audit(k.T, k.there()) {
		if r.Resource == "managedclusters" && (r.Verb == "watch" || r.Verb == "list") {
			codes = append(codes, r.Code)
		}
	}
	return codes
}

// A hub of Open Cluster Management lets the agent watch its ManagedCluster, by
// name. Ours does not.
func TestAgentWatchesItsManagedCluster(t *testing.T) {
	k := newAgentKube(t, "cluster2")
	k.run()
	kubetest.Eventually(k.T, "the agent creates a ManagedCluster", func() bool { return k.Cluster(k.Name).Name != "" })
	k.accept()
	k.Step("a hub that forbids it is asked once", func(t *testing.T) {
		kubetest.Eventually(k.T, "the agent asks for a watch", func() bool { return len(k.watches()) > 0 })
		since := k.renewed()
		kubetest.Eventually(k.T, "the Lease is renewed", func() bool { return k.renewed().Sub(since) > 3*time.Second })
		// a watch and a list
		if got := k.watches(); len(got) > 2 || slices.ContainsFunc(got, func(code int) bool {
			return code != http.StatusForbidden
		}) {
			t.Errorf("answers %d", got)
		}
		if k.event("RegistrationFailed") {
			t.Error("there is an Event about it")
		}
	})
	k.Step("changes are seen at once", func(t *testing.T) {
		k.setLease(3600)
		named := metav1.ObjectMeta{Name: "watch-" + k.Name}
		k.create(&rbacv1.ClusterRole{ObjectMeta: named,
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{ocm.GroupVersion.Group},
				Resources: []string{"managedclusters"}, ResourceNames: []string{k.Name}, Verbs: []string{"list", "watch"}}}})
		k.create(&rbacv1.ClusterRoleBinding{ObjectMeta: named,
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: k.Name, Name: "agent"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name}})
		k.Hub.Await(t, authorizationv1.SubjectAccessReviewSpec{User: k.there(),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "watch", Group: ocm.GroupVersion.Group, Resource: "managedclusters", Name: k.Name}})
		if err := k.Local.Delete(t.Context(), k.Secret()); err != nil { // another credential
			t.Fatal(err)
		}
		k.setLease(2700)
		start := time.Now()
		for _, seconds := range []int32{1800, 900, 450} { // looks are a minute apart
			k.setLease(seconds)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("three changes took %s", took)
		}
	})
	k.Step("changes of the status, which hub and agent may overwrite in turns, are no reason to look", func(t *testing.T) {
		looks := func() (n int) {
			for _, r := range k.Hub.Audit(t, k.there()) {
				if r.Resource == "managedclusters" && r.Verb == "get" {
					n++
				}
			}
			return n
		}
		before := looks()
		for i := range 100 {
			cluster := k.Cluster(k.Name)
			base := cluster.DeepCopy()
			meta.SetStatusCondition(&cluster.Status.Conditions,
				metav1.Condition{Type: "Test", Status: metav1.ConditionTrue, Reason: "Test", Message: fmt.Sprint(i)})
			regtest.Must(t, k.Admin.Status().Patch(t.Context(), cluster, client.MergeFrom(base)))
		}
		k.setLease(300)
		n := looks() - before
		if t.Logf("%d looks", n); n > 5 {
			t.Error("too many")
		}
	})
}
