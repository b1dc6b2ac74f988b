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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// hubHeading is the section of docs/wid.md whose commands TestDocumentedHub
// runs, word for word.
const hubHeading = "Clusters of a hub"

// All pages about a hub work as they are written, one after the other on the
// same two clusters. Each one but the last leaves nothing.
func TestDocumentedHub(t *testing.T) {
	w := newHubEnvironment(t, "namespace")
	w.runKubelet()
	fails(t, cli.ExitMisconfigured, "wid hub init", "hub", "status", w.onHub)
	must(t, "bootstrap", "publish", "--kubeconfig="+w.hubKubeconfig)
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
	if out := d.next("wid join"); !strings.Contains(out,
		`The agent of cluster "cluster1" has the image "registry.example/wid-agent:v2"`) {
		w.t.Errorf("join says %s", out)
	}
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
	w.until("the restored cluster is available", func() bool {
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
		w.until(o.GetName()+" is gone", func() bool {
			return apierrors.IsNotFound(w.hub.Get(ctx, client.ObjectKeyFromObject(o), o))
		})
	}
	regtest.Must(w.t, w.hub.DeleteAllOf(ctx, &rbacv1.ClusterRoleBinding{}, labelled))
	regtest.Must(w.t, w.hub.DeleteAllOf(ctx, &rbacv1.ClusterRole{}, labelled))
}

func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// joinAndLeave follows docs/wid.md, with the mistakes that are possible at each
// step.
func (w *hubEnvironment) joinAndLeave() {
	t := w.t
	d := w.document(document.Read(t, "docs/wid.md").Section(hubHeading))
	out := d.next("wid hub init")
	if !strings.Contains(out, "with --hub-apiserver\n") || strings.Contains(out, "certificates") {
		t.Errorf("init says %s", out)
	}
	variables := joinVariables(t, out)
	token, address, pin := variables[0][len("TOKEN="):], variables[1], variables[2]
	stopHub := w.runHub(hub.Options{})
	if out := must(t, "hub", "status", w.onHub); out != "no clusters" {
		t.Errorf("status says %s", out)
	}
	fails(t, cli.ExitMisconfigured, `no ManagedCluster "managed-0"`, "hub", "accept", w.onHub, "--clusters=managed-0")
	fails(t, cli.ExitMisconfigured, "wid hub status lists the clusters", "hub", "deny", w.onHub, "--clusters=managed-0")
	fails(t, cli.ExitUnavailable, "gave up waiting for the agent", "hub", "accept", w.onHub, "--clusters=managed-0",
		"--wait", "--timeout=1s")
	w.leaveAHubThatIsGone()
	join := []string{"join", w.onOther, "--hub-token=" + token, "--hub-apiserver=" + address[len("HUB="):],
		"--ca-cert-hash=" + pin[len("PIN="):], "--cluster-name=managed-0", "--image=registry.example/wid-agent:v1"}
	if out := d.next("wid join", variables...); !strings.Contains(out,
		"wid hub accept --clusters managed-0 --context HUB") || strings.Contains(out, token) {
		t.Errorf("join says %s", out)
	}
	w.checkPodSecurity(w.managed, append(join, "--reveal")...)
	w.checkPodSecurity(w.hub, "hub", "init", "--image=x")
	join = append(join, "--apply")
	givesUp := func(timeout string) bool {
		_, err := wid(t, "", append(join, "--wait", "--timeout="+timeout)...)
		return cli.ExitCode(t.Context(), err) == cli.ExitUnavailable &&
			strings.Contains(err.Error(), "gave up waiting for the hub to let cluster")
	}
	if !givesUp("2s") && !givesUp("20s") { // a busy machine needs more time before it waits
		t.Error("join does not wait for the hub")
	}
	w.checkFirstContact(token)
	stopAgent := w.runAgent("managed-0")
	w.until("the agent asks for a certificate", func() bool {
		all := statusOf(t, w.onHub)
		return len(all) == 1 && len(all[0].PendingRequests) == 1
	})
	if s := statusOf(t, w.onHub)[0]; s.Name != "managed-0" || s.AuthType != "csr" || s.Accepted || s.Joined != "" {
		t.Errorf("status is %+v", s)
	}
	if out := d.next("wid hub accept"); !strings.Contains(out, `of user "system:bootstrap:`) ||
		!strings.Contains(out, `cluster "managed-0" has joined`) {
		t.Errorf("accept says %s", out)
	}
	must(t, append(join, "--wait")...)
	if out := must(t, join...); !strings.HasSuffix(out, "\nThe cluster is already accepted") {
		t.Errorf("join says %s", out)
	}
	w.until("the cluster is available", func() bool { return statusOf(t, w.onHub)[0].Available == "True" })
	if fields := strings.Join(strings.Fields(d.next("wid hub status")), " "); !strings.Contains(fields,
		"managed-0 csr true True True ") || !strings.HasSuffix(fields, " 0 -") {
		t.Errorf("status is\n%s", fields)
	}
	if out := d.next("wid hub token"); !strings.Contains(out,
		pin[len(
			"PIN="):]+" --cluster-name managed-1 --image registry.example/wid-agent:v1 --context CLUSTER_CONTEXT --apply") {
		t.Errorf("token says %s", out)
	}
	const another = `registered as "managed-0", not as "managed-1"`
	fails(t, cli.ExitMisconfigured, another, "unjoin", w.onOther, "--cluster-name=managed-1")
	fails(t, cli.ExitMisconfigured, another, append(join, "--cluster-name=managed-1")...)
	if out := d.next("wid unjoin"); !strings.Contains(out, "withdrawn") || !strings.Contains(out, "Secret") {
		t.Errorf("unjoin says %s", out)
	}
	w.until("the hub takes away the access", func() bool {
		s := statusOf(t, w.onHub)[0]
		return !s.Accepted && s.Reason == ocm.ReasonHubDenied
	})
	if out := d.next("wid hub cleanup"); strings.TrimSpace(out) != "none denied for 1h" {
		t.Errorf("cleanup says %s", out)
	}
	for name, object := range map[string]client.Object{ocm.HubKubeconfigSecret: &corev1.Secret{},
		agent.DefaultBootstrapSecret: &corev1.Secret{}, ocm.AgentName: &appsv1.Deployment{}} {
		if err := w.managed.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: name},
			object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s: %v", object, name, err)
		}
	}
	stopAgent()
	stopHub()
	d.next("wid hub init")
	d.next("wid join", variables...)
	w.purge()
	d.expectAllTried()
}

// purge leaves with everything that is the cluster's own.
func (w *hubEnvironment) purge() {
	w.t.Helper()
	secret := func(name, cluster string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultAddOnNamespace, Name: name,
			Labels: map[string]string{addon.NameLabel: "search", ocm.AddOnClusterLabel: cluster}}}
	}
	own, other := secret("search-hub-kubeconfig", "managed-0"), secret("other", "managed-1")
	for _, s := range []client.Object{own, other} {
		regtest.Must(w.t, w.managed.Create(w.t.Context(), s))
	}
	out := must(w.t, "unjoin", w.onOther, "--cluster-name=managed-0", "--purge")
	for _, want := range []string{"wid hub deny --clusters managed-0", `Namespace "open-cluster-management-agent" deleted`,
		`Role "open-cluster-management-agent-addon/registration-agent-addon" deleted`,
		`Secret "open-cluster-management-agent-addon/search-hub-kubeconfig" deleted`} {
		if !strings.Contains(out, want) {
			w.t.Errorf("unjoin says no %s: %s", want, out)
		}
	}
	if err := w.managed.Get(w.t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		w.t.Errorf("the Secret of another cluster: %v", err)
	}
}

// checkPodSecurity creates a pod of a printed Deployment where the Restricted
// Pod Security Standard is enforced.
func (w *hubEnvironment) checkPodSecurity(c client.Client, args ...string) {
	w.t.Helper()
	objects, err := manifests.Parse(must(w.t, args...))
	regtest.Must(w.t, err)
	var deployment appsv1.Deployment
	regtest.Must(w.t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[len(objects)-1].Object, &deployment))
	checkRestricted(w.t, c, deployment.Namespace, deployment.Spec.Template)
}

// checkRestricted creates a pod of a template where that standard is enforced.
func checkRestricted(t *testing.T, c client.Client, namespace string, template corev1.PodTemplateSpec) {
	t.Helper()
	enforce := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	regtest.Must(t, c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, enforce))
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = namespace, "pod"
	if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// checkFirstContact joins with other credentials.
func (w *hubEnvironment) checkFirstContact(bootstrapToken string) {
	w.t.Helper()
	ca := "--ca-file=" + writeFile(w.t, "ca.crt", string(w.hubConfig.CAData))
	with := func(token, how string) []string {
		return []string{"join", "--cluster-name=managed-0", "--image=x", "--hub-apiserver=" + w.hubConfig.Host,
			"--hub-token=" + token, how}
	}
	const namespace, allowed, stranger = "open-cluster-management", "agent-registration-bootstrap", "other"
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: allowed}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: stranger}}} {
		if err := w.hub.Create(w.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
	}
	account := func(name string) string { return w.as(w.hub, w.hubConfig, namespace, name).BearerToken }
	if _, err := manifests.Parse(must(w.t, with(account(allowed), ca)...)); err != nil {
		w.t.Error(err)
	}
	fails(w.t, cli.ExitDenied, ocm.BootstrapRole, with(account(stranger), ca)...)
	fails(w.t, cli.ExitUnavailable, "renew the token", with("abcdef.0123456789abcdef", ca)...)
	fails(w.t, cli.ExitDenied, "pins", with(bootstrapToken, "--ca-cert-hash=sha256:"+strings.Repeat("ab", 32))...)
}

// leaveAHubThatIsGone has a cluster leave a hub that does not answer.
func (w *hubEnvironment) leaveAHubThatIsGone() {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: agent.DefaultNamespace}
	regtest.Must(w.t, w.managed.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: meta}))
	meta.Namespace = meta.Name
	for _, meta.Name = range []string{agent.DefaultBootstrapSecret, ocm.HubKubeconfigSecret} {
		kubeconfig := kubeconfigOf(w.t, "https://127.0.0.1:1", nil, nil, nil, "hunter2")
		regtest.Must(w.t,
			w.managed.Create(w.t.Context(),
				&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"kubeconfig": kubeconfig}}))
	}
	fails(w.t, cli.ExitUnavailable, "--force", "unjoin", w.onOther, "--cluster-name=managed-0")
	if out := must(w.t, "unjoin", w.onOther, "--cluster-name=managed-0", "--force"); !strings.Contains(out,
		"wid hub deny --clusters managed-0") || strings.Count(out, "deleted") != 2 || strings.Contains(out, "hunter2") {
		w.t.Errorf("unjoin says %s", out)
	}
}

// joinThroughRelay follows docs/registration.md. Neither the page's last
// commands nor an uninstall leave anything of the relay.
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
	w.until("the cluster is available", func() bool { return statusOf(t, w.onHub)[0].Available == "True" })
	own := &corev1.Secret{}
	regtest.Must(t,
		w.managed.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret}, own))
	used, err := regtest.CredentialOf(own)
	if err != nil || used.Host != relay.Host {
		t.Errorf("the agent uses %+v, %v", used, err)
	}
	stopAgent()
	stopHub()
	stopHub = w.runHub(hub.Options{})
	w.until("the hub takes the relay's rights", func() bool { return len(w.rolesOfRelay()) == 2 }) // the manifests'
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
	w.until("the cluster is gone", func() bool {
		return apierrors.IsNotFound(w.hub.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	})
	stopHub()
	must(t, "hub", "init", w.onHub, "--image=x", "--relay", "--apply", "--yes")
	must(t, "hub", "init", w.onHub, "--uninstall")
	gone := func(c client.Client, namespace string) bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{}))
	}
	w.until("the uninstall removes the relay", func() bool {
		return len(w.rolesOfRelay()) == 0 && gone(w.hub, ocm.RelayNamespace)
	})
	w.until("the managed cluster is empty", func() bool { return gone(w.managed, agent.DefaultNamespace) })
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
