package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// hubHeading is the section of docs/wid.md whose commands TestDocumentedHub
// runs, word for word.
const hubHeading = "Clusters of a hub"

// All pages about a hub work as they are written, one after the other on the
// same two clusters. Each one but the last leaves nothing.
func TestDocumentedHub(t *testing.T) {
	w := newHubEnvironment(t, "namespace")
	w.runKubelet()
	must(t, "bootstrap", "publish", w.onHub)
	w.installUpgradeRemove()
	w.joinThroughRelay()
	w.joinAndLeave()
}

// objects lists all objects of both clusters, apart from those that expire.
func (w *hubEnvironment) objects() (names []string) {
	w.t.Helper()
	for cluster, config := range map[string]*rest.Config{"hub": w.hubConfig, "managed-0": w.managedConfig} {
		lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
		regtest.Must(w.t, err)
		all := metadata.NewForConfigOrDie(config)
		for _, list := range lists {
			group, err := schema.ParseGroupVersion(list.GroupVersion)
			regtest.Must(w.t, err)
			for _, r := range list.APIResources {
				if !slices.Contains(r.Verbs, "list") || r.Name == "events" || r.Name == "componentstatuses" {
					continue
				}
				found, err := all.Resource(group.WithResource(r.Name)).List(w.t.Context(), metav1.ListOptions{})
				if err != nil {
					w.t.Fatalf("%s: %v", r.Name, err)
				}
				for _, o := range found.Items {
					names = append(names, cluster+" "+group.Group+" "+r.Name+" "+o.Namespace+"/"+o.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// installUpgradeRemove follows docs/registration.md and
// docs/registration-operate.md. Nothing is left.
func (w *hubEnvironment) installUpgradeRemove() {
	joining := document.Read(w.t, "docs/registration.md")
	d := w.document(joining.Section("Join a cluster"),
		document.Read(w.t, "docs/registration-operate.md").Section("Upgrade, back up, remove"))
	before := w.objects()
	variables := joinVariables(w.t, d.next("wid hub init"))
	stopHub := w.runHub(hub.Options{})
	if r := d.try(joining.Section("With kustomize").Block("sh", "wid join")+
		"\nkubectl --kubeconfig kubeconfig auth whoami -o jsonpath='{.status.userInfo.groups}'", variables...); r.code != 0 ||
		!strings.Contains(r.stdout, registration.BootstrapGroup) {
		w.t.Errorf("the kubeconfig of the overlay: %+v", r)
	}
	d.next("wid join", variables...)
	stopAgent := w.runAgent("cluster1")
	d.next("wid hub accept")

	d.next("wid hub init")
	d.next("wid join")
	for range 2 { // back up
		d.next("kubectl")
	}
	stopAgent()
	stopHub()
	recorded := w.recordOf("cluster1")[ocm.AgentAnnotation]
	w.lose("cluster1")
	d.next("wid hub init")
	for range 3 { // restore
		d.next("kubectl")
	}
	w.runHub(hub.Options{})
	w.runAgent("cluster1")
	kubetest.Eventually(w.t, "the restored cluster is available", func() bool {
		all := statusOf(w.t, w.onHub)
		return len(all) == 1 && all[0].Accepted && all[0].Joined == "True" && all[0].Available == "True" &&
			all[0].Condition == "True"
	})
	if now := w.recordOf("cluster1")[ocm.AgentAnnotation]; recorded == "" || now != recorded {
		w.t.Errorf("the agent %q was recorded, and %q is after the restore", recorded, now)
	}

	d.next("wid unjoin")
	for len(d.left) > 0 {
		d.next("")
	}
	if after := w.objects(); !slices.Equal(before, after) {
		w.t.Errorf("left are %q, missing are %q", minus(after, before), minus(before, after))
	}
}

// recordOf returns the annotations of a cluster's ClusterRole.
func (w *hubEnvironment) recordOf(cluster string) map[string]string {
	w.t.Helper()
	role := &rbacv1.ClusterRole{}
	regtest.Must(w.t, w.hub.Get(w.t.Context(), client.ObjectKey{Name: registration.ClusterRoleName(cluster)}, role))
	return role.Annotations
}

// lose deletes what the hub knows of a cluster. Neither its finalizers nor the
// hub program revoke anything, as if etcd were lost.
func (w *hubEnvironment) lose(cluster string) {
	w.t.Helper()
	ctx, labelled := w.t.Context(), client.MatchingLabels{ocm.ClusterNameLabel: cluster}
	roles, bindings := &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	regtest.Must(w.t, w.hub.List(ctx, roles, client.InNamespace(cluster)))
	regtest.Must(w.t, w.hub.List(ctx, bindings, client.InNamespace(cluster)))
	var all []client.Object
	for i := range bindings.Items {
		all = append(all, &bindings.Items[i])
	}
	for i := range roles.Items {
		all = append(all, &roles.Items[i])
	}
	for _, o := range append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
		&ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}) {
		regtest.Must(w.t, client.IgnoreNotFound(w.hub.Delete(ctx, o)))
		regtest.Must(w.t,
			client.IgnoreNotFound(w.hub.Patch(ctx, o,
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		kubetest.Eventually(w.t, o.GetName()+" is gone", func() bool {
			return apierrors.IsNotFound(w.hub.Get(ctx, client.ObjectKeyFromObject(o), o))
		})
	}
	regtest.Must(w.t, w.hub.DeleteAllOf(ctx, &rbacv1.ClusterRoleBinding{}, labelled))
	regtest.Must(w.t, w.hub.DeleteAllOf(ctx, &rbacv1.ClusterRole{}, labelled))
}

func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// joinAndLeave follows docs/wid.md.
func (w *hubEnvironment) joinAndLeave() {
	t := w.t
	d := w.document(document.Read(t, "docs/wid.md").Section(hubHeading))
	variables := joinVariables(t, d.next("wid hub init"))
	stopHub := w.runHub(hub.Options{})
	d.next("wid join", variables...)
	stopAgent := w.runAgent("managed-0")
	kubetest.Eventually(t, "the agent asks for a certificate", func() bool {
		all := statusOf(t, w.onHub)
		return len(all) == 1 && len(all[0].PendingRequests) == 1 && !all[0].Accepted
	})
	d.next("wid hub accept")
	kubetest.Eventually(t, "the cluster is available", func() bool { return statusOf(t, w.onHub)[0].Available == "True" })
	d.next("wid hub status")
	d.next("wid hub token")
	d.next("wid unjoin")
	kubetest.Eventually(t, "the hub takes away the access", func() bool {
		s := statusOf(t, w.onHub)[0]
		return !s.Accepted && s.Reason == ocm.ReasonHubDenied
	})
	d.next("wid hub cleanup")
	for name, object := range map[string]client.Object{ocm.HubKubeconfigSecret: &corev1.Secret{},
		agent.DefaultBootstrapSecret: &corev1.Secret{}, ocm.AgentName: &appsv1.Deployment{}} {
		key := client.ObjectKey{Namespace: agent.DefaultNamespace, Name: name}
		if err := w.managed.Get(t.Context(), key, object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is still there: %v", object, name, err)
		}
	}
	stopAgent()
	stopHub()
	d.next("wid hub init")
	d.next("wid join", variables...)
	must(t, "unjoin", w.onOther, "--cluster-name=managed-0", "--purge")
	d.expectAllTried()
}

// joinThroughRelay follows docs/registration.md. The page's last commands leave
// nothing of the relay.
func (w *hubEnvironment) joinThroughRelay() {
	t := w.t
	d := w.document(document.Read(t, "docs/registration.md").Section("Relay"))
	cert, key := regtest.ServingCertificate(t, d.programs.home)
	d.next("wid hub init")
	for _, begins := range []string{
		"kubectl --context hub -n open-cluster-management-relay create secret tls",
		"kubectl --context hub -n open-cluster-management-relay patch service",
		"kubectl --context hub -n open-cluster-management-relay rollout status",
	} {
		d.next(begins)
	}
	relay := regtest.RunRelay(t, w.cluster, cert, key)
	regtest.Must(t, os.WriteFile(filepath.Join(d.programs.home, "relay-ca.crt"), relay.CAData, 0o600))
	stopHub := w.runHub(hub.Options{Relay: true})
	token := joinVariables(t, must(t, "hub", "token", w.onHub))[0]
	d.next("wid join", token, "RELAY="+relay.Host)
	stopAgent := w.runAgent("managed-0")
	d.next("wid hub accept")
	kubetest.Eventually(w.t, "the cluster is available", func() bool {
		return statusOf(t, w.onHub)[0].Available == "True"
	})
	own := &corev1.Secret{}
	regtest.Must(t,
		w.managed.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret}, own))
	used, err := regtest.CredentialOf(own)
	if err != nil || used.Host != relay.Host {
		t.Errorf("the agent uses %+v, %v, want the relay %s", used, err, relay.Host)
	}
	stopAgent()
	stopHub()
	stopHub = w.runHub(hub.Options{})
	// the manifests'
	kubetest.Eventually(w.t, "the hub takes the relay's rights", func() bool { return len(w.rolesOfRelay()) == 2 })
	d.next("wid hub init")
	for range 3 {
		d.next("kubectl --context hub")
	}
	d.expectAllTried()
	if left := w.rolesOfRelay(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	must(t, "unjoin", w.onOther, "--cluster-name=managed-0", "--purge", "--force")
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "managed-0"}}
	regtest.Must(t, w.hub.Delete(t.Context(), cluster))
	kubetest.Eventually(w.t, "the cluster is gone", func() bool {
		return apierrors.IsNotFound(w.hub.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	})
	stopHub()
	must(t, "hub", "init", w.onHub, "--uninstall")
	kubetest.Eventually(t, "the managed cluster is empty", func() bool {
		return apierrors.IsNotFound(w.managed.Get(t.Context(), client.ObjectKey{Name: agent.DefaultNamespace},
			&corev1.Namespace{}))
	})
}

// One cluster joins two hubs as docs/registration.md says. Neither agent touches
// the other's objects.
func TestDocumentedSecondHub(t *testing.T) {
	w := newHubEnvironment(t)
	w.runKubelet()
	b := w.another("hub-b")
	b.runKubelet()
	available := func(w *hubEnvironment) bool {
		all := statusOf(t, w.onHub)
		return len(all) == 1 && all[0].Available == "True"
	}
	page := document.Read(t, "docs/registration.md")
	must(t, "bootstrap", "publish", w.onHub)
	d := w.document(page.Section("Join a cluster"), page.Section("Several hubs"))
	variables := joinVariables(t, d.next("wid hub init"))
	w.runHub(hub.Options{})
	d.next("wid join", variables...)
	w.runAgent("cluster1")
	d.next("wid hub accept")
	kubetest.Eventually(t, "the cluster is available at the first hub", func() bool { return available(w) })

	must(t, "bootstrap", "publish", b.onHub)
	variables = joinVariables(t, must(t, "hub", "init", b.onHub, "--image=x", "--apply"))
	b.runHub(hub.Options{})
	args := []string{"join", w.onOther, "--cluster-name=cluster1", "--image=x", "--apply"}
	for i, flag := range []string{"--hub-token=", "--hub-apiserver=", "--ca-cert-hash="} {
		_, value, _ := strings.Cut(variables[i], "=")
		args = append(args, flag+value)
	}
	first := strings.TrimSuffix(w.hubConfig.Host, "/")
	fails(t, cli.ExitMisconfigured, `joins this cluster to the hub "`+first+`"`, args...)
	d.next("wid join", variables...)
	stop := b.runAgentIn("agent-hub-b", "cluster1")
	d.next("wid hub accept")
	kubetest.Eventually(t, "the cluster is available at the second hub", func() bool { return available(b) })
	d.next("wid doctor registration")
	stop()
	d.next("wid unjoin")
	d.expectAllTried()
	kubetest.Eventually(t, "the second hub takes away the access", func() bool {
		return statusOf(t, b.onHub)[0].Reason == ocm.ReasonHubDenied
	})
	for name, object := range map[string]client.Object{ocm.HubKubeconfigSecret: &corev1.Secret{},
		agent.DefaultBootstrapSecret: &corev1.Secret{}, ocm.AgentName: &appsv1.Deployment{}} {
		regtest.Must(t, w.managed.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: name}, object))
	}
	if !available(w) {
		t.Errorf("the first hub has %+v", statusOf(t, w.onHub))
	}
}

// rolesOfRelay are the ClusterRoles that belong to the relay.
func (w *hubEnvironment) rolesOfRelay() (names []string) {
	w.t.Helper()
	var list rbacv1.ClusterRoleList
	regtest.Must(w.t, w.hub.List(w.t.Context(), &list))
	for _, role := range list.Items {
		if strings.HasSuffix(role.Name, ":relay") {
			names = append(names, role.Name)
		}
	}
	return names
}
