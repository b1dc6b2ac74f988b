package agent_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/addonapi/v1alpha1"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// addOnKube is a cluster that has joined, on two API servers, whose agent registers add-ons with exactly the RBAC of the manifests.
type addOnKube struct {
	*agentKube
	driver, signer *addOnDriver
	agent          *agent.Agent
}

const addOnCount = 50

func TestAddOnsOnTwoAPIServers(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	k := newAddOnKube(t)
	stop := k.start()
	defer func() { stop() }()
	start := time.Now()
	for i := range addOnCount {
		k.addOn(fmt.Sprintf("addon%d", i), "", kubeClient)
	}
	k.addOn("both", "", kubeClient, customSigner)
	k.until("not all add-ons are registered", func() bool { return len(k.secrets()) == addOnCount+2 })
	t.Logf("%d add-ons registered after %s", addOnCount+1, time.Since(start).Round(time.Millisecond))
	k.until("no condition", func() bool { return meta.IsStatusConditionTrue(k.status("both").Conditions, "AddonTokenRefreshed") })

	t.Run("steady state writes nothing", k.testSteadyState)
	t.Run("Secret deleted", func(t *testing.T) {
		old := k.secret("addon1-hub-kubeconfig")
		k.delete(t, k.local, old)
		k.until("no new Secret", func() bool {
			s := k.secret("addon1-hub-kubeconfig")
			return s.UID != old.UID && len(s.Data["token"]) > 0 && string(s.Data["token"]) != string(old.Data["token"])
		})
	})
	t.Run("item removed", func(*testing.T) {
		k.patch("both", func(s *addon.Status) { s.Items = s.Items[:1] })
		k.until("its Secret is left", func() bool { return len(k.secrets()) == addOnCount+1 })
	})
	t.Run("add-on deleted", func(t *testing.T) {
		k.delete(t, k.hub, k.get("addon2"))
		k.until("its Secret is left", func() bool { return k.secret("addon2-hub-kubeconfig").Name == "" })
		if n := len(k.secrets()); n != addOnCount {
			t.Errorf("%d Secrets are left", n)
		}
	})
	t.Run("namespace without rights", func(*testing.T) {
		k.addOn("elsewhere", "elsewhere", kubeClient)
		k.until("no condition", func() bool {
			c := meta.FindStatusCondition(k.status("elsewhere").Conditions, regname.ConditionRegistrationAccepted)
			return c != nil && c.Reason == "NamespaceUnusable"
		})
	})
	t.Run("one that hangs delays no other", func(*testing.T) {
		k.driver.set(func() { k.driver.hang = "hangs" })
		k.addOn("hangs", "", kubeClient)
		k.addOn("quick", "", kubeClient)
		k.until("the other one is not registered", func() bool { return k.secret("quick-hub-kubeconfig").Name != "" })
	})
	t.Run("hub moves", k.testMove)
	t.Run("deleted while the agent is away", func(t *testing.T) {
		stop()
		k.delete(t, k.hub, k.get("addon3"))
		stop = k.start()
		since := time.Now()
		k.until("its Secret is left", func() bool { return k.secret("addon3-hub-kubeconfig").Name == "" })
		if took := time.Since(since); took > 20*time.Second {
			t.Errorf("removed after %s, as late as a retry", took)
		}
	})
	t.Run("no API of add-ons is not an absent add-on", k.testVanished)
	t.Run("no right is unused", k.testRights)
}

func newAddOnKube(t *testing.T) *addOnKube {
	k := &addOnKube{agentKube: newAgentKube(t), driver: &addOnDriver{name: "token", condition: "AddonTokenRefreshed"},
		signer: &addOnDriver{name: "csr", condition: regname.ConditionCertificateRotated}}
	k.apply(k.local, registration.AgentAddOnManifest)
	k.apply(k.hub, addon.CRD)
	k.create(k.local, k.bootstrapSecret(k.hubConfig.Host))
	c, err := client.New(k.hubConfig, client.Options{Scheme: addOnScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	k.hub = c
	return k
}

// start runs the agent until the cluster has joined, with the add-ons.
func (k *addOnKube) start() (stop func()) {
	k.t.Helper()
	k.agent, stop = k.runWith(func(mgr ctrl.Manager, a *agent.Agent) error {
		addOns, err := agent.NewAddOns(agent.AddOnOptions{Agent: a, KubeClient: k.driver, CustomSigner: k.signer})
		if err != nil {
			return err
		}
		return addOns.SetupWithManager(mgr, 4)
	})
	k.until("the agent creates no ManagedCluster", func() bool { return k.cluster().Name != "" })
	if !k.cluster().Spec.HubAcceptsClient {
		k.accept()
		group := addon.GroupVersion.Group
		k.create(k.hub, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addons"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{"managedclusteraddons"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{group}, Resources: []string{"managedclusteraddons/status"}, Verbs: []string{"patch"}}}})
		k.create(k.hub, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "addons"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "cluster1", Name: "agent"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "addons"}})
	}
	k.until("the cluster does not join", func() bool { return meta.IsStatusConditionTrue(k.cluster().Status.Conditions, ocm.ConditionJoined) })
	return stop
}

func (k *addOnKube) addOn(name, namespace string, items ...ocm.Registration) {
	k.t.Helper()
	o := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name}}
	k.create(k.hub, o)
	o.Status.Namespace = namespace
	o.Status.SetItems(items)
	if err := k.hub.Status().Update(k.t.Context(), o); err != nil {
		k.t.Fatal(err)
	}
}

func (k *addOnKube) get(name string) *addon.ManagedClusterAddOn {
	k.t.Helper()
	o := &addon.ManagedClusterAddOn{}
	if err := k.hub.Get(k.t.Context(), client.ObjectKey{Namespace: "cluster1", Name: name}, o); err != nil {
		k.t.Fatal(err)
	}
	return o
}

func (k *addOnKube) status(name string) addon.Status {
	k.t.Helper()
	return addon.StatusOf(k.get(name))
}

func (k *addOnKube) patch(name string, change func(*addon.Status)) {
	k.t.Helper()
	if err := addon.PatchStatus(k.t.Context(), k.hub, k.get(name), func(s *addon.Status) bool { change(s); return true }); err != nil {
		k.t.Fatal(err)
	}
}

func (k *addOnKube) delete(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// secrets are those with a credential.
func (k *addOnKube) secrets() []corev1.Secret {
	k.t.Helper()
	var list corev1.SecretList
	if err := k.local.List(k.t.Context(), &list, client.InNamespace(addOnNamespace), client.HasLabels{regname.AddOnClusterLabel}); err != nil {
		k.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(s corev1.Secret) bool { return len(s.Data["auth-type"]) == 0 })
}

func (k *addOnKube) secret(name string) *corev1.Secret {
	k.t.Helper()
	secret := &corev1.Secret{}
	if err := k.local.Get(k.t.Context(), client.ObjectKey{Namespace: addOnNamespace, Name: name}, secret); err != nil {
		return &corev1.Secret{}
	}
	return secret
}

// used returns the requests about a resource that the agent has made on a cluster.
func (k *addOnKube) used(t *testing.T, cluster *kubetest.Cluster, user, resource, namespace string) (all []kubetest.Request) {
	t.Helper()
	for _, r := range cluster.Audit(t, user) {
		if r.Resource == resource && r.Namespace == namespace {
			all = append(all, r)
		}
	}
	return all
}

const (
	agentHere  = "system:serviceaccount:" + agentNamespace + ":registration-agent"
	agentThere = "system:serviceaccount:cluster1:agent"
)

// testSteadyState counts requests while the agent renews its Lease three times.
func (k *addOnKube) testSteadyState(t *testing.T) {
	count := func() int {
		return len(k.used(t, k.hubs, agentThere, "managedclusteraddons", "cluster1")) + len(k.used(t, k.managed, agentHere, "secrets", addOnNamespace))
	}
	// Each write is followed by a look, which comes to an end.
	before, since := -1, k.renewed()
	k.until("requests do not end", func() bool {
		if k.renewed().Sub(since) < time.Second {
			return false
		}
		last := before
		before, since = count(), k.renewed()
		return before == last
	})
	k.until("the Lease is not renewed", func() bool { return k.renewed().Sub(since) > 3*time.Second })
	if n := count() - before; n != 0 {
		t.Errorf("%d requests in steady state", n)
	}
}

// testMove gives the hub another address.
func (k *addOnKube) testMove(t *testing.T) {
	moved := strings.Replace(k.hubConfig.Host, "127.0.0.1", "localhost", 1)
	if moved == k.hubConfig.Host {
		t.Fatalf("the hub is at %q", k.hubConfig.Host)
	}
	token := string(k.secret("addon1-hub-kubeconfig").Data["token"])
	if err := k.local.Update(t.Context(), k.bootstrapSecret(moved)); err != nil {
		t.Fatal(err)
	}
	k.until("kubeconfigs have the old address", func() bool {
		return !slices.ContainsFunc(k.secrets(), func(s corev1.Secret) bool {
			return s.Data["kubeconfig"] != nil && !strings.Contains(string(s.Data["kubeconfig"]), moved)
		})
	})
	if got := string(k.secret("addon1-hub-kubeconfig").Data["token"]); got != token {
		t.Error("the credential was replaced")
	}
	k.addOn("late", "", kubeClient)
	k.until("an add-on that comes after the move is not registered", func() bool { return k.secret("late-hub-kubeconfig").Name != "" })
}

// testVanished asks for a version that the hub does not serve, as after an upgrade.
func (k *addOnKube) testVanished(t *testing.T) {
	mapper := &servedMapper{}
	mapper.serve(v1alpha1.GroupVersion)
	opts := k.options()
	joined, err := agent.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	addOns, err := agent.NewAddOns(agent.AddOnOptions{Agent: joined, KubeClient: k.driver,
		NewHubClient: func(config *rest.Config) (client.Client, error) {
			return client.New(config, client.Options{Scheme: addOnScheme(t), Mapper: mapper})
		}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = joined.Reconcile(t.Context(), reconcile.Request{})
	if apierrors.IsConflict(err) { // the other agent of this test renewed the Lease at the same time
		_, err = joined.Reconcile(t.Context(), reconcile.Request{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"addon4", "absent"} {
		result, err := addOns.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "cluster1", Name: name}})
		if err != nil || result.RequeueAfter.Round(time.Second) != 30*time.Second {
			t.Errorf("%s: back after %s, %v", name, result.RequeueAfter, err)
		}
	}
	if k.secret("addon4-hub-kubeconfig").Name == "" {
		t.Error("the Secret was removed")
	}
}

func (k *addOnKube) testRights(t *testing.T) {
	for name, row := range map[string]struct {
		requests []kubetest.Request
		want     []string
	}{
		"Secrets": {k.used(t, k.managed, agentHere, "secrets", addOnNamespace), []string{"create", "delete", "get", "list", "update", "watch"}},
		// A watch begins with all add-ons. A hub before Kubernetes 1.32 needs list, too.
		"add-ons": {k.used(t, k.hubs, agentThere, "managedclusteraddons", "cluster1"), []string{"get", "patch", "watch"}},
	} {
		t.Run(name, func(t *testing.T) {
			used := map[string]bool{}
			for _, r := range row.requests {
				if r.Code == http.StatusForbidden {
					t.Errorf("refused: %+v", r)
				}
				used[r.Verb] = true
			}
			if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, row.want) {
				t.Errorf("the agent used the verbs %q, it has %q", got, row.want)
			}
		})
	}
	if err := k.as(string(k.agentKube.secret().Data["shared"])).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.Secret{}); !apierrors.IsForbidden(err) {
		t.Errorf("the agent's rights are too wide: %v", err)
	}
}
