package hub_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
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

// hubKube is a hub with everything that HubRBAC has. No cluster is managed.
type hubKube struct {
	*regtest.Environment
	rules []rbacv1.PolicyRule // of the hub controller
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

func TestHubOnARealAPIServer(t *testing.T) {
	k := startHub(t)
	k.Step("few requests after a restart", k.testRestart)
	k.Step("a cluster leaves by itself", k.testLeave)
	k.Step("clusters of another hub program", k.testMoved)
	k.Step("each verb of the RBAC is needed", k.testVerbs)
	k.Step("the admission policy", k.testPolicy)
}

func startHub(t *testing.T) *hubKube {
	t.Helper()
	k := &hubKube{Environment: regtest.NewHub(t, kubetest.Start(t)),
		rules: regtest.RulesOf(t, manifests.HubRBAC(), "open-cluster-management:hub:registration")}
	// Here the API server also keeps unknown fields, such as those of a
	// released hub.
	crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1",
		"kind":     "CustomResourceDefinition",
		"metadata": map[string]any{"name": "managedclusters." + ocm.GroupVersion.Group}}}
	keep :=
		`{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/%s/x-kubernetes-preserve-unknown-fields","value":true}`
	patch := fmt.Appendf(nil, "["+keep+","+keep+"]", "spec", "status")
	regtest.Must(t, k.Admin.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, patch)))
	k.installOCM(t)
	return k
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
	return kubetest.RunManager(t, mgr)
}

func setAccepted(t *testing.T, c client.Client, name string, accepted bool) error {
	t.Helper()
	return regtest.Patch(t.Context(), c, name, fmt.Sprintf(`{"spec":{"hubAcceptsClient":%t}}`, accepted))
}

// setUnknownFields writes what our types do not know.
func (k *hubKube) setUnknownFields(t *testing.T, name string) {
	t.Helper()
	o := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	regtest.Must(t,
		k.Admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"later":{"a":1}}}`))))
	regtest.Must(t,
		k.Admin.Status().Patch(t.Context(), o,
			client.RawPatch(types.MergePatchType, []byte(`{"status":{"capacity":{"cpu":"4"}}}`))))
}

func (k *hubKube) checkUnknownFields(t *testing.T, name string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(ocm.GroupVersion.WithKind("ManagedCluster"))
	regtest.Must(t, k.Admin.Get(t.Context(), client.ObjectKey{Name: name}, o))
	later, _, _ := unstructured.NestedInt64(o.Object, "spec", "later", "a")
	cpu, _, _ := unstructured.NestedString(o.Object, "status", "capacity", "cpu")
	if later != 1 || cpu != "4" {
		t.Errorf("fields that our types do not know are lost: %v", o.Object)
	}
}

// testLeave lets a cluster leave by itself, on a hub whose objects have fields
// that our types do not know.
func (k *hubKube) testLeave(t *testing.T) {
	k.run(t, k.controllerConfig(), 4, newHubDriver("one", driverAnnotation))
	regtest.Must(t, k.Admin.Create(t.Context(), managedCluster("cluster1")))
	k.setUnknownFields(t, "cluster1")
	k.Accept("cluster1")
	k.checkUnknownFields(t, "cluster1")
	agent := k.AsAgent("cluster1")
	k.Step("an agent may not remove the finalizer", func(t *testing.T) {
		k.awaitPolicy(t)
		err := regtest.Patch(t.Context(), agent, "cluster1", `{"metadata":{"finalizers":null}}`)
		if !apierrors.IsForbidden(err) {
			t.Errorf("error %v, want Forbidden", err)
		}
	})
	kubetest.Eventually(t, "the agent leaves", func() bool { return setAccepted(t, agent, "cluster1", false) == nil })
	k.AwaitRevoked("cluster1")
	k.AwaitReason("cluster1", ocm.ConditionHubAccepted, ocm.ReasonHubDenied)
	k.checkUnknownFields(t, "cluster1")
	kubetest.Eventually(t, "the API server forbids the agent", func() bool {
		return apierrors.IsForbidden(agent.Get(t.Context(), client.ObjectKey{Name: "cluster1"}, &ocm.ManagedCluster{}))
	})
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
				k.Step(fmt.Sprintf("%s %s", verb, resource), func(t *testing.T) {
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
	c := regtest.NewClient(t, k.Hub.User(t, name, "", rules...))
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
	regtest.Must(t, k.Admin.Create(t.Context(), managedCluster(name)))
	if err := reconcileOnce(); err != nil {
		return err
	}
	for _, o := range append(bindingsFor(name), roleFor(name)) {
		regtest.Must(t, k.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if role, ok := o.(*rbacv1.ClusterRole); ok {
			role.Rules = nil
		} else {
			_, subjects := partsOf(o)
			*subjects = nil
		}
		regtest.Must(t, k.Admin.Update(t.Context(), o))
	}
	cluster := k.Cluster(name)
	meta.SetStatusCondition(&cluster.Status.Conditions,
		metav1.Condition{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue, Reason: "Joined"})
	regtest.Must(t, k.Admin.Status().Update(t.Context(), cluster))
	if err := reconcileOnce(); err != nil {
		return err
	}
	finalizer := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+regtest.WorkCleanup+`"]}}`))
	for _, o := range bindingsFor(name) { // as on hubs of Open Cluster Management
		regtest.Must(t, k.Admin.Patch(t.Context(), o, finalizer))
	}
	k.SetAccepted(name, false)
	if err := reconcileOnce(); err != nil {
		return err
	}
	regtest.Must(t,
		k.Admin.Patch(t.Context(), managedCluster(name),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+regtest.ResourceCleanup+`"]}}`))))
	regtest.Must(t, k.Admin.Delete(t.Context(), managedCluster(name)))
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
		k.Hub.User(t, strings.ReplaceAll(t.Name(), "/", "-"), "",
			rbacv1.PolicyRule{APIGroups: []string{ocm.GroupVersion.Group}, Resources: []string{"managedclusters"},
				Verbs: []string{"create"}}))
	kubetest.Eventually(t, "the admission policy is in force", func() bool {
		return apierrors.IsForbidden(c.Create(t.Context(), managedCluster("policy", accept), client.DryRunAll))
	})
}
