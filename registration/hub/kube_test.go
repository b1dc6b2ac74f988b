package hub_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

// hubKube is a hub's API server with everything that HubRBAC has.
type hubKube struct {
	*kubetest.Cluster
	admin client.Client
	rules []rbacv1.PolicyRule // of the hub controller
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

func TestHubOnARealAPIServer(t *testing.T) {
	k := startHub(t)
	t.Run("few requests after a restart", k.testRestart)
	t.Run("the whole flow with exactly the embedded RBAC", k.testFlow)
	t.Run("clusters of another hub program", k.testMoved)
	t.Run("each verb of the RBAC is needed", k.testVerbs)
	t.Run("the admission policy", k.testPolicy)
}

func startHub(t *testing.T) *hubKube {
	t.Helper()
	rules := regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:hub:registration")
	k := &hubKube{Cluster: kubetest.Start(t), rules: rules}
	k.admin = regtest.NewClient(t, k.Config())
	regtest.Apply(t, k.admin, ocm.CRD())
	// Here the API server also keeps unknown fields, such as those of a
	// released hub.
	crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1",
		"kind":     "CustomResourceDefinition",
		"metadata": map[string]any{"name": "managedclusters." + ocm.GroupVersion.Group}}}
	keep :=
		`{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/%s/x-kubernetes-preserve-unknown-fields","value":true}`
	patch := fmt.Appendf(nil, "["+keep+","+keep+"]", "spec", "status")
	regtest.Must(t, k.admin.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, patch)))
	regtest.Eventually(t, "the API server serves ManagedClusters", func() bool {
		return regtest.NewClient(t, k.Config()).List(t.Context(), &ocm.ManagedClusterList{}) == nil
	})
	k.installOCM(t)
	regtest.Apply(t, k.admin, manifests.HubRBAC())
	return k
}

// user returns a client of a user with the given groups.
func (k *hubKube) user(t *testing.T, name string, groups ...string) client.Client {
	return regtest.As(t, k.Cluster, name, groups...)
}

func (k *hubKube) agent(t *testing.T, cluster string) client.Client {
	return k.user(t, registration.AgentUser(cluster, "agent1"), registration.ClusterGroup(cluster),
		ocm.ManagedClustersGroup)
}

// run runs a hub in a manager until the test ends or stop is called.
func (k *hubKube) run(t *testing.T, config *rest.Config, workers int, drivers ...registration.HubDriver) (stop func()) {
	t.Helper()
	mgr := regtest.NewManager(t, config, hub.CacheOptions())
	hub,
		err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: drivers, Default: "one",
		Recorder: mgr.GetEventRecorder("registration-hub")})
	regtest.Must(t, err)
	regtest.Must(t, hub.SetupWithManager(mgr, workers))
	return regtest.RunManager(t, mgr)
}

func (k *hubKube) get(t *testing.T, name string) *ocm.ManagedCluster {
	t.Helper()
	c := &ocm.ManagedCluster{}
	regtest.Must(t, client.IgnoreNotFound(k.admin.Get(t.Context(), client.ObjectKey{Name: name}, c)))
	return c
}

func (k *hubKube) setAccepted(t *testing.T, c client.Client, name string, accepted bool) error {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"hubAcceptsClient":%v}}`, accepted))
	return c.Patch(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
}

func (k *hubKube) awaitCondition(t *testing.T, name, kind, reason string) {
	t.Helper()
	regtest.Eventually(t, fmt.Sprintf("%s of %q says %s", kind, name, reason), func() bool {
		c := meta.FindStatusCondition(k.get(t, name).Status.Conditions, kind)
		return c != nil && c.Reason == reason
	})
}

// setUnknownFields writes what our types do not know.
func (k *hubKube) setUnknownFields(t *testing.T, name string) {
	t.Helper()
	o := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	regtest.Must(t,
		k.admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"later":{"a":1}}}`))))
	regtest.Must(t,
		k.admin.Status().Patch(t.Context(), o,
			client.RawPatch(types.MergePatchType, []byte(`{"status":{"capacity":{"cpu":"4"}}}`))))
}

func (k *hubKube) checkUnknownFields(t *testing.T, name string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(ocm.GroupVersion.WithKind("ManagedCluster"))
	regtest.Must(t, k.admin.Get(t.Context(), client.ObjectKey{Name: name}, o))
	later, _, _ := unstructured.NestedInt64(o.Object, "spec", "later", "a")
	cpu, _, _ := unstructured.NestedString(o.Object, "status", "capacity", "cpu")
	if later != 1 || cpu != "4" {
		t.Errorf("fields that our types do not know are lost: %v", o.Object)
	}
}

func (k *hubKube) testFlow(t *testing.T) {
	const user = "hub-flow"
	driver := newHubDriver("one", driverAnnotation)
	driver.approves = false
	config := k.User(t, user, "", k.rules...)
	k.User(t, user, ocm.HubNamespace, regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:hub:auth-types")...)
	k.run(t, config, 4, driver)
	for _, name := range []string{"cluster1", "cluster10"} {
		regtest.Must(t, k.admin.Create(t.Context(), managedCluster(name, annotated(driverAnnotation, "id-"+name))))
		k.setUnknownFields(t, name)
		regtest.Must(t, k.setAccepted(t, k.admin, name, true))
		k.awaitCondition(t, name, ocm.ConditionHubAccepted, ocm.ReasonHubAccepted)
	}
	driver.mu.Lock()
	if granted := driver.granted; granted["cluster1"] != "id-cluster1" || granted["cluster10"] != "id-cluster10" {
		t.Errorf("the driver has granted %v", granted)
	}
	driver.mu.Unlock()
	k.Await(t, authorizationv1.SubjectAccessReviewSpec{User: registration.AgentUser("cluster1", "agent1"),
		Groups: []string{registration.ClusterGroup("cluster1")},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "cluster1", Verb: "update",
			Group: "work.open-cluster-management.io", Resource: "manifestworks"}})
	t.Run("the agent may do its own, and nothing of its neighbour", k.testAgent)
	t.Run("unknown fields survive", func(t *testing.T) { k.checkUnknownFields(t, "cluster1") })
	t.Run("the cluster leaves by itself", func(t *testing.T) {
		regtest.Must(t, k.setAccepted(t, k.agent(t, "cluster1"), "cluster1", false))
		k.awaitGone(t, "cluster1")
		k.awaitCondition(t, "cluster1", ocm.ConditionHubAccepted, ocm.ReasonHubDenied)
		k.checkUnknownFields(t, "cluster1")
		regtest.Eventually(t, "the API server forbids the agent", func() bool {
			return apierrors.IsForbidden(k.agent(t, "cluster1").Get(t.Context(), client.ObjectKey{Name: "cluster1"},
				&ocm.ManagedCluster{}))
		})
	})
	t.Run("an agent may not remove the finalizer", func(t *testing.T) {
		k.awaitPolicy(t)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := k.agent(t, "cluster10").Patch(t.Context(), managedCluster("cluster10"),
			patch); !apierrors.IsForbidden(err) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("a deleted cluster is revoked by the record, though the finalizer was removed", func(t *testing.T) {
		annotate := client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+driverAnnotation+`":"id-victim"}}}`))
		regtest.Must(t, k.agent(t, "cluster10").Patch(t.Context(), managedCluster("cluster10"), annotate))
		k.awaitCondition(t, "cluster10", ocm.ConditionHubAccepted, ocm.ReasonClaimChanged)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		regtest.Must(t, k.admin.Patch(t.Context(), managedCluster("cluster10"), patch))
		regtest.Must(t, k.admin.Delete(t.Context(), managedCluster("cluster10")))
		k.awaitGone(t, "cluster10")
	})
	driver.mu.Lock()
	defer driver.mu.Unlock()
	if len(driver.granted) > 0 {
		t.Errorf("the driver still grants %v", driver.granted)
	}
	for _, r := range k.Audit(t, user) {
		if r.Code == http.StatusForbidden {
			t.Errorf("the hub was forbidden %s %s/%s %s/%s", r.Verb, r.Resource, r.Subresource, r.Namespace, r.Name)
		}
	}
}

// awaitGone waits until a cluster has no RBAC.
func (k *hubKube) awaitGone(t *testing.T, cluster string) {
	t.Helper()
	for _, o := range append(bindingsFor(cluster), roleFor(cluster)) {
		regtest.Eventually(t, o.GetName()+" is gone", func() bool {
			return apierrors.IsNotFound(k.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)) || !isGranting(o)
		})
	}
}

func (k *hubKube) testAgent(t *testing.T) {
	agent := k.agent(t, "cluster1")
	lease := func(cluster string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: ocm.LeaseName}}
	}
	own := lease("cluster1")
	annotate := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
	joined := client.RawPatch(types.MergePatchType, []byte(`{"status":{"version":{"kubernetes":"v1.36.3"}}}`))
	for what, err := range map[string]error{
		"read its ManagedCluster": agent.Get(t.Context(), client.ObjectKey{Name: "cluster1"},
			&ocm.ManagedCluster{}),
		"annotate its ManagedCluster":         agent.Patch(t.Context(), managedCluster("cluster1"), annotate),
		"write its status":                    agent.Status().Patch(t.Context(), managedCluster("cluster1"), joined),
		"read the Lease that the hub created": agent.Get(t.Context(), client.ObjectKeyFromObject(own), own),
		"renew its Lease":                     agent.Update(t.Context(), own),
	} {
		if err != nil {
			t.Errorf("the agent may not %s: %v", what, err)
		}
	}
	role := roleFor("cluster1")
	for what, err := range map[string]error{
		"read another ManagedCluster": agent.Get(t.Context(), client.ObjectKey{Name: "cluster10"},
			&ocm.ManagedCluster{}),
		"annotate another ManagedCluster":     agent.Patch(t.Context(), managedCluster("cluster10"), annotate),
		"create a Lease in another namespace": agent.Create(t.Context(), lease("cluster10")),
		"write a Lease of another name": agent.Update(t.Context(),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "a"}}),
		"read all ManagedClusters":             agent.List(t.Context(), &ocm.ManagedClusterList{}),
		"read Secrets of its namespace":        agent.List(t.Context(), &corev1.SecretList{}, client.InNamespace("cluster1")),
		"rewrite the record of what it claims": agent.Patch(t.Context(), role, annotate),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("the agent may %s: %v", what, err)
		}
	}
}

// testVerbs takes away one verb at a time.
func (k *hubKube) testVerbs(t *testing.T) {
	k.awaitPolicy(t)
	if err := k.play(t, "all", k.rules); err != nil {
		t.Fatalf("with all verbs: %v", err)
	}
	n := 0
	for i, rule := range k.rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				n++
				t.Run(fmt.Sprintf("%s %s", verb, resource), func(t *testing.T) {
					err := k.play(t, fmt.Sprintf("rbac-%d", n), without(k.rules, i, resource, verb))
					if !apierrors.IsForbidden(err) {
						t.Errorf("without the verb the error is %v", err)
					}
				})
			}
		}
	}
}

// without returns the rules without one verb on one resource.
func without(rules []rbacv1.PolicyRule, i int, resource, verb string) []rbacv1.PolicyRule {
	rules = slices.Clone(rules)
	one, others := *rules[i].DeepCopy(), *rules[i].DeepCopy()
	one.Resources = []string{resource}
	one.Verbs = slices.DeleteFunc(one.Verbs, func(v string) bool { return v == verb })
	others.Resources = slices.DeleteFunc(others.Resources, func(r string) bool { return r == resource })
	rules = slices.Delete(rules, i, i+1)
	for _, r := range []rbacv1.PolicyRule{one, others} {
		if len(r.Verbs) > 0 && len(r.Resources) > 0 {
			rules = append(rules, r)
		}
	}
	return rules
}

// play makes every request that a hub makes, as a user with the given rules,
// and returns the first error.
func (k *hubKube) play(t *testing.T, name string, rules []rbacv1.PolicyRule) error {
	t.Helper()
	c := regtest.NewClient(t, k.User(t, name, "", rules...))
	driver := newHubDriver("one", driverAnnotation)
	driver.approves = true
	hub, err := hub.New(hub.Options{Client: c, Drivers: []registration.HubDriver{driver}, Default: "one"})
	regtest.Must(t, err)
	reconcileOnce := func() error {
		_, err := hub.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		return err
	}
	if err := informers(t, c); err != nil {
		return err
	}
	if err := recordEvent(t, c, name); err != nil {
		return err
	}
	regtest.Must(t, k.admin.Create(t.Context(), managedCluster(name)))
	if err := reconcileOnce(); err != nil {
		return err
	}
	for _, o := range append(bindingsFor(name), roleFor(name)) {
		regtest.Must(t, k.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if role, ok := o.(*rbacv1.ClusterRole); ok {
			role.Rules = nil
		} else {
			_, subjects := partsOf(o)
			*subjects = nil
		}
		regtest.Must(t, k.admin.Update(t.Context(), o))
	}
	cluster := k.get(t, name)
	meta.SetStatusCondition(&cluster.Status.Conditions,
		metav1.Condition{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue, Reason: "Joined"})
	regtest.Must(t, k.admin.Status().Update(t.Context(), cluster))
	if err := reconcileOnce(); err != nil {
		return err
	}
	finalizer := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+regtest.WorkCleanup+`"]}}`))
	for _, o := range bindingsFor(name) { // as on hubs of Open Cluster Management
		regtest.Must(t, k.admin.Patch(t.Context(), o, finalizer))
	}
	regtest.Must(t, k.setAccepted(t, k.admin, name, false))
	if err := reconcileOnce(); err != nil {
		return err
	}
	regtest.Must(t,
		k.admin.Patch(t.Context(), managedCluster(name),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+regtest.ResourceCleanup+`"]}}`))))
	regtest.Must(t, k.admin.Delete(t.Context(), managedCluster(name)))
	return reconcileOnce()
}

// informers makes the requests of a manager's cache.
func informers(t *testing.T, c client.WithWatch) error {
	for _, list := range []client.ObjectList{&ocm.ManagedClusterList{}, &corev1.NamespaceList{}, &rbacv1.ClusterRoleList{},
		&rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}} {
		if err := c.List(t.Context(), list, client.Limit(1)); err != nil {
			return err
		}
		watch, err := c.Watch(t.Context(), list)
		if err != nil {
			return err
		}
		watch.Stop()
	}
	return nil
}

func recordEvent(t *testing.T, c client.Client, name string) error {
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, EventTime: metav1.NowMicro(),
		Action: "Register",
		Reason: "Test", Type: corev1.EventTypeNormal, ReportingController: "registration-hub", ReportingInstance: "test",
		Regarding: corev1.ObjectReference{Kind: "ManagedCluster", Name: name}}
	if err := c.Create(t.Context(), event); err != nil {
		return err
	}
	return c.Patch(t.Context(), event,
		client.RawPatch(types.MergePatchType,
			[]byte(`{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`)))
}

// awaitPolicy waits until the admission policy is in force.
func (k *hubKube) awaitPolicy(t *testing.T) {
	t.Helper()
	c := regtest.NewClient(t,
		k.User(t, strings.ReplaceAll(t.Name(), "/", "-"), "",
			rbacv1.PolicyRule{APIGroups: []string{ocm.GroupVersion.Group}, Resources: []string{"managedclusters"},
				Verbs: []string{"create"}}))
	regtest.Eventually(t, "the admission policy is in force", func() bool {
		return apierrors.IsForbidden(c.Create(t.Context(), managedCluster("policy", accept), client.DryRunAll))
	})
}
