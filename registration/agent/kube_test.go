package agent_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// agentKube is a managed cluster and a hub that are real API servers. The test plays the hub's controller.
type agentKube struct {
	t             *testing.T
	managed, hubs *kubetest.Cluster
	local, hub    client.Client // of administrators
	hubConfig     *rest.Config
	agentConfig   *rest.Config // of the agent's ServiceAccount on the managed cluster
	bootstrapped  string       // the token of a bootstrap user
}

func newAgentKube(t *testing.T) *agentKube {
	managed, hub := kubetest.StartNew(t), kubetest.StartNew(t)
	k := &agentKube{t: t, managed: managed, hubs: hub, hubConfig: hub.Config()}
	k.local, k.hub = k.client(managed.Config()), k.client(hub.Config())
	k.apply(k.local, registration.AgentManifest)
	k.apply(k.hub, ocm.CRD)
	k.apply(k.hub, registration.BootstrapManifest)
	k.serviceAccount("open-cluster-management", "agent-registration-bootstrap")
	k.bootstrapped = k.token(k.hub, "open-cluster-management", "agent-registration-bootstrap")
	k.agentConfig = rest.AnonymousClientConfig(managed.Config())
	k.agentConfig.BearerToken = k.token(k.local, agentNamespace, "registration-agent")
	return k
}

func (k *agentKube) client(config *rest.Config) client.Client {
	k.t.Helper()
	c, err := client.New(config, client.Options{Scheme: agentScheme(k.t)})
	if err != nil {
		k.t.Fatal(err)
	}
	return c
}

// as returns a client of the hub with a token.
func (k *agentKube) as(token string) client.Client {
	k.t.Helper()
	config := rest.AnonymousClientConfig(k.hubConfig)
	config.BearerToken = token
	return k.client(config)
}

func (k *agentKube) apply(c client.Client, manifest string) {
	k.t.Helper()
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &u.Object); err != nil {
			k.t.Fatal(err)
		}
		k.create(c, u)
	}
}

func (k *agentKube) create(c client.Client, obj client.Object) {
	k.t.Helper()
	if err := c.Create(k.t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
		k.t.Fatal(err)
	}
}

// serviceAccount creates a ServiceAccount of the hub, with its namespace.
func (k *agentKube) serviceAccount(namespace, name string) {
	k.t.Helper()
	k.create(k.hub, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	k.create(k.hub, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

func (k *agentKube) token(c client.Client, namespace, name string) string {
	k.t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.SubResource("token").Create(k.t.Context(), account, request); err != nil {
		k.t.Fatal(err)
	}
	return request.Status.Token
}

// until polls, since two API servers and an agent work at the same time.
func (k *agentKube) until(what string, done func() bool) {
	k.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			k.t.Fatalf("after a minute: %s", what)
		}
	}
}

func (k *agentKube) cluster() *ocm.ManagedCluster {
	cluster := &ocm.ManagedCluster{}
	if err := k.hub.Get(k.t.Context(), client.ObjectKey{Name: "cluster1"}, cluster); err != nil {
		return &ocm.ManagedCluster{}
	}
	return cluster
}

func (k *agentKube) secret() *corev1.Secret {
	secret := &corev1.Secret{}
	if err := k.local.Get(k.t.Context(), client.ObjectKey{Namespace: agentNamespace, Name: ocm.HubKubeconfigSecret}, secret); err != nil {
		return &corev1.Secret{}
	}
	return secret
}

// accept does what an administrator and the hub's controller do.
func (k *agentKube) accept() {
	k.t.Helper()
	k.serviceAccount("cluster1", "agent")
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	name := registration.ClusterRoleName("cluster1")
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "cluster1", Name: "agent"}}
	k.create(k.hub, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		rule(ocm.GroupVersion.Group, "managedclusters", "get", "patch"), rule(ocm.GroupVersion.Group, "managedclusters/status", "patch"),
		// A ServiceAccount is not in the cluster's group, by which the policies know the cluster itself.
		{APIGroups: []string{ocm.GroupVersion.Group}, Resources: []string{"managedclusters/accept"}, Verbs: []string{"update"}, ResourceNames: []string{"cluster1"}}}})
	k.create(k.hub, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
	k.create(k.hub, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "agent"},
		Rules: []rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "create", "get", "update")}})
	k.create(k.hub, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "agent"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"}})
	cluster := k.cluster()
	base := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient, cluster.Spec.LeaseDurationSeconds = true, 1
	if err := k.hub.Patch(k.t.Context(), cluster, client.MergeFrom(base)); err != nil {
		k.t.Fatal(err)
	}
	base = cluster.DeepCopy()
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: ocm.ReasonHubAccepted})
	if err := k.hub.Status().Patch(k.t.Context(), cluster, client.MergeFrom(base)); err != nil {
		k.t.Fatal(err)
	}
}

func (k *agentKube) bind(bound bool) {
	k.t.Helper()
	name := registration.ClusterRoleName("cluster1")
	if !bound {
		if err := k.hub.Delete(k.t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			k.t.Fatal(err)
		}
		return
	}
	k.create(k.hub, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "cluster1", Name: "agent"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
}

// renewed returns when the Lease was last renewed.
func (k *agentKube) renewed() time.Time {
	lease := &coordinationv1.Lease{}
	if err := k.hub.Get(k.t.Context(), client.ObjectKey{Namespace: "cluster1", Name: ocm.LeaseName}, lease); err != nil || lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

func (k *agentKube) event(reason string) bool {
	var list eventsv1.EventList
	if err := k.local.List(k.t.Context(), &list, client.InNamespace(agentNamespace)); err != nil {
		k.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == reason {
			return true
		}
	}
	return false
}

// options are those of a program: the agent's own ServiceAccount, and real clients of the hub.
func (k *agentKube) options() agent.Options {
	driver := &sharedToken{asked: map[string]bool{}, issue: func(string) string { return k.token(k.hub, "cluster1", "agent") }}
	return agent.Options{Cluster: "cluster1", Driver: driver, Local: k.client(k.agentConfig),
		Version: func(context.Context) (string, error) {
			d, err := discovery.NewDiscoveryClientForConfig(k.agentConfig)
			if err != nil {
				return "", err
			}
			info, err := d.ServerVersion()
			if err != nil {
				return "", err
			}
			return info.GitVersion, nil
		}}
}

// bootstrapSecret has the hub under an address, and the bootstrap user.
func (k *agentKube) bootstrapSecret(server string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: agent.DefaultBootstrapSecret},
		StringData: map[string]string{"kubeconfig": strings.Replace(strings.Replace(bootstrapKubeconfig(server), bootstrapToken, k.bootstrapped, 1),
			"server:", "certificate-authority-data: "+base64.StdEncoding.EncodeToString(k.hubConfig.CAData)+", server:", 1)}}
}

// run starts the agent under a manager and returns a function that ends it.
func (k *agentKube) run() (joining *agent.Agent, stop func()) { return k.runWith(nil) }

// runWith starts more with the agent.
func (k *agentKube) runWith(more func(ctrl.Manager, *agent.Agent) error) (joining *agent.Agent, stop func()) {
	k.t.Helper()
	mgr, err := ctrl.NewManager(k.agentConfig, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		k.t.Fatal(err)
	}
	opts := k.options()
	opts.Recorder = mgr.GetEventRecorder("registration-agent")
	if joining, err = agent.New(opts); err != nil {
		k.t.Fatal(err)
	}
	if err := joining.SetupWithManager(mgr); err != nil {
		k.t.Fatal(err)
	}
	if more != nil {
		if err := more(mgr, joining); err != nil {
			k.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(k.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return joining, func() {
		cancel()
		if err := <-ended; err != nil {
			k.t.Error(err)
		}
	}
}

// An agent with the RBAC of AgentManifest joins a hub with the RBAC of BootstrapManifest, with the driver of another project.
func TestAgentOnTwoAPIServers(t *testing.T) {
	k := newAgentKube(t)
	agent, stop := k.run()
	k.until("no Event about the missing bootstrap Secret", func() bool { return k.event("RegistrationFailed") })
	k.create(k.local, k.bootstrapSecret(k.hubConfig.Host))
	k.until("the agent creates no ManagedCluster", func() bool { return k.cluster().Name != "" })
	k.until("no Event about the driver's condition", func() bool { return k.event("NotAccepted") })
	k.tryBootstrapRights(false)

	start := time.Now()
	k.accept()
	k.until("the cluster does not join", func() bool {
		status := k.cluster().Status
		return meta.IsStatusConditionTrue(status.Conditions, ocm.ConditionJoined) && meta.IsStatusConditionTrue(status.Conditions, ocm.ConditionAvailable) &&
			strings.HasPrefix(status.Version.Kubernetes, "v1.") && !k.renewed().IsZero()
	})
	t.Logf("joined %s after acceptance", time.Since(start).Round(time.Millisecond))
	k.tryBootstrapRights(true)

	t.Run("lease is renewed", func(*testing.T) {
		first := k.renewed()
		k.until("the Lease is not renewed", func() bool { return k.renewed().Sub(first) > time.Second })
	})
	t.Run("access taken away and given back", func(t *testing.T) {
		before := k.secret().ResourceVersion
		k.bind(false)
		k.until("no Event about the lost access", func() bool { return k.event("WaitingForAcceptance") })
		k.bind(true)
		since := time.Now()
		k.until("the Lease is not renewed", func() bool { return k.renewed().After(since) })
		if got := k.secret().ResourceVersion; got != before {
			t.Error("the Secret was written")
		}
	})
	t.Run("Secret deleted", func(*testing.T) {
		old := k.secret()
		if err := k.local.Delete(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		k.until("no new credential", func() bool {
			s := k.secret()
			return s.UID != old.UID && len(s.Data["shared"]) > 0 && string(s.Data["agent-name"]) != string(old.Data["agent-name"])
		})
	})
	t.Run("credential revoked while the agent is away", func(t *testing.T) { k.revoke(t, stop) })
	t.Run("no right to Secrets is unused", func(t *testing.T) {
		used := map[string]bool{}
		for _, r := range k.managed.Audit(t, "system:serviceaccount:"+agentNamespace+":registration-agent") {
			if r.Resource == "secrets" && r.Code < 300 {
				used[r.Verb] = true
			}
		}
		delete(used, "list") // only with API servers that do not stream lists
		if got, want := slices.Sorted(maps.Keys(used)), []string{"create", "get", "update", "watch"}; !slices.Equal(got, want) {
			t.Errorf("the agent used the verbs %q, its Role has %q and list", got, want)
		}
	})
	t.Run("unjoin", func(t *testing.T) {
		if err := agent.Unjoin(t.Context()); err != nil || k.cluster().Spec.HubAcceptsClient {
			t.Errorf("unjoin: %v", err)
		}
	})
}

// revoke lets a new process find a credential that the hub refuses.
func (k *agentKube) revoke(t *testing.T, stop func()) {
	stop()
	old := string(k.secret().Data["shared"])
	if err := k.hub.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "agent"}}); err != nil {
		t.Fatal(err)
	}
	k.serviceAccount("cluster1", "agent")
	k.until("the hub still takes the old token", func() bool {
		return apierrors.IsUnauthorized(k.as(old).Get(t.Context(), client.ObjectKey{Name: "cluster1"}, &ocm.ManagedCluster{}))
	})
	agent, err := agent.New(k.options())
	if err != nil {
		t.Fatal(err)
	}
	if result, err := agent.Reconcile(t.Context(), reconcile.Request{}); err != nil || result.RequeueAfter != time.Second {
		t.Errorf("back after %s, %v", result.RequeueAfter, err)
	}
	if got := string(k.secret().Data["shared"]); got == old || got == "" {
		t.Error("the credential was not replaced")
	}
}

// tryBootstrapRights tries what bootstrap users may do to a cluster, which is to set annotations until it is accepted. One of them is in a
// group that an administrator has bound.
func (k *agentKube) tryBootstrapRights(accepted bool) {
	k.t.Helper()
	k.create(k.hub, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-mine"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: regname.BootstrapRole},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers:mine"}}})
	mine := rest.CopyConfig(k.hubConfig)
	mine.Impersonate = rest.ImpersonationConfig{UserName: "system:bootstrap:mine00", Groups: []string{"system:bootstrappers:mine", "system:authenticated"}}
	for _, user := range []client.Client{k.as(k.bootstrapped), k.client(mine)} {
		k.tryRights(user, accepted)
		k.tryCreate(user)
	}
}

func (k *agentKube) tryCreate(user client.Client) {
	k.t.Helper()
	for what, m := range map[string]metav1.ObjectMeta{
		"label":     {Labels: map[string]string{"a": "b"}},
		"finalizer": {Finalizers: []string{ocm.Finalizer}},
		"owner":     {OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "a", UID: "b"}}},
	} {
		m.Name = "new"
		if err := user.Create(k.t.Context(), &ocm.ManagedCluster{ObjectMeta: m}, client.DryRunAll); !apierrors.IsInvalid(err) {
			k.t.Errorf("a bootstrap user creates a cluster with a %s: %v", what, err)
		}
	}
	k.create(k.hub, &unstructured.Unstructured{Object: map[string]any{"apiVersion": ocm.GroupVersion.String(), "kind": "ManagedCluster",
		"metadata": map[string]any{"name": "bare"}}})
	annotate := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
	if err := user.Patch(k.t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}, annotate); err != nil {
		k.t.Errorf("a bootstrap user annotates a cluster without a spec: %v", err)
	}
}

func (k *agentKube) tryRights(user client.Client, accepted bool) {
	k.t.Helper()
	patch := func(body string) error {
		return user.Patch(k.t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}, client.RawPatch("application/merge-patch+json", []byte(body)))
	}
	// The policy takes a moment to become effective.
	try := 0
	k.until("a bootstrap user may set a label", func() bool {
		try++
		return apierrors.IsInvalid(patch(fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, try)))
	})
	for what, body := range map[string]string{
		"accept or deny": fmt.Sprintf(`{"spec":{"hubAcceptsClient":%t}}`, !accepted),
		"taint":          `{"spec":{"taints":[{"key":"a","effect":"NoSelect"}]}}`,
		"finalizer":      `{"metadata":{"finalizers":["example.com/a"]}}`,
		"owner":          `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"a","uid":"b"}]}}`,
	} {
		if err := patch(body); !apierrors.IsInvalid(err) {
			k.t.Errorf("accepted %t: a bootstrap user may %s: %v", accepted, what, err)
		}
	}
	if err := patch(`{"metadata":{"annotations":{"by":"bootstrap"}}}`); (err == nil) == accepted {
		k.t.Errorf("accepted %t: a bootstrap user sets an annotation: %v", accepted, err)
	}
	if err := user.Delete(k.t.Context(), k.cluster()); !apierrors.IsForbidden(err) {
		k.t.Errorf("a bootstrap user deletes a cluster: %v", err)
	}
}

// setLease changes the duration that the hub asks for, and waits until the agent's Lease has it.
func (k *agentKube) setLease(seconds int32) {
	k.t.Helper()
	cluster := k.cluster()
	base := cluster.DeepCopy()
	cluster.Spec.LeaseDurationSeconds = seconds
	if err := k.hub.Patch(k.t.Context(), cluster, client.MergeFrom(base)); err != nil {
		k.t.Fatal(err)
	}
	k.until("the agent has not taken up the duration", func() bool {
		lease := &coordinationv1.Lease{}
		err := k.hub.Get(k.t.Context(), client.ObjectKey{Namespace: "cluster1", Name: ocm.LeaseName}, lease)
		return err == nil && lease.Spec.LeaseDurationSeconds != nil && *lease.Spec.LeaseDurationSeconds == seconds
	})
}

// watches returns the codes of the agent's watches of its ManagedCluster.
func (k *agentKube) watches() (codes []int) {
	k.t.Helper()
	for _, r := range k.hubs.Audit(k.t, agentThere) {
		if r.Resource == "managedclusters" && (r.Verb == "watch" || r.Verb == "list") {
			codes = append(codes, r.Code)
		}
	}
	return codes
}

// A hub of Open Cluster Management lets the agent watch its ManagedCluster, by name. Ours does not.
func TestAgentWatchesItsManagedCluster(t *testing.T) {
	k := newAgentKube(t)
	k.create(k.local, k.bootstrapSecret(k.hubConfig.Host))
	_, stop := k.run()
	defer stop()
	k.until("the agent creates no ManagedCluster", func() bool { return k.cluster().Name != "" })
	k.accept()
	t.Run("a hub that forbids it is asked once", func(t *testing.T) {
		k.until("the agent asks for no watch", func() bool { return len(k.watches()) > 0 })
		since := k.renewed()
		k.until("the Lease is not renewed", func() bool { return k.renewed().Sub(since) > 3*time.Second })
		if got := k.watches(); len(got) > 2 || slices.ContainsFunc(got, func(code int) bool { return code != http.StatusForbidden }) { // a watch and a list
			t.Errorf("answers %d", got)
		}
		if k.event("RegistrationFailed") {
			t.Error("there is an Event about it")
		}
	})
	t.Run("changes are seen at once", func(t *testing.T) {
		k.setLease(3600)
		named := metav1.ObjectMeta{Name: "watch-cluster1"}
		k.create(k.hub, &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{APIGroups: []string{ocm.GroupVersion.Group},
			Resources: []string{"managedclusters"}, ResourceNames: []string{"cluster1"}, Verbs: []string{"list", "watch"}}}})
		k.create(k.hub, &rbacv1.ClusterRoleBinding{ObjectMeta: named, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "cluster1", Name: "agent"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name}})
		k.hubs.Await(t, authorizationv1.SubjectAccessReviewSpec{User: agentThere, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "watch", Group: ocm.GroupVersion.Group, Resource: "managedclusters", Name: "cluster1"}})
		if err := k.local.Delete(t.Context(), k.secret()); err != nil { // another credential
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
	t.Run("changes of the status, which hub and agent may overwrite in turns, are no reason to look", func(t *testing.T) {
		looks := func() (n int) {
			for _, r := range k.hubs.Audit(t, agentThere) {
				if r.Resource == "managedclusters" && r.Verb == "get" {
					n++
				}
			}
			return n
		}
		before := looks()
		for i := range 300 {
			cluster := k.cluster()
			base := cluster.DeepCopy()
			meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: "Test", Status: metav1.ConditionTrue, Reason: "Test", Message: fmt.Sprint(i)})
			if err := k.hub.Status().Patch(t.Context(), cluster, client.MergeFrom(base)); err != nil {
				t.Fatal(err)
			}
		}
		k.setLease(300)
		n := looks() - before
		if t.Logf("%d looks", n); n > 5 {
			t.Error("too many")
		}
	})
}
