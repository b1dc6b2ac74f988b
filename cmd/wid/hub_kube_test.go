package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/agentrequest"
	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// hubHeading is the section of docs/wid.md whose commands TestHubCommands runs, word for word.
const hubHeading = "Clusters of a hub"

// hubWorld is a hub and a cluster that are real API servers. The programs of the Deployments run in this process.
type hubWorld struct {
	t              *testing.T
	hub, managed   client.Client // of administrators
	hubConfig      *rest.Config
	managedConfig  *rest.Config
	onHub, onOther string // flags
	hubKubeconfig  string
	documented     []string // commands of docs/wid.md that have not run yet
}

// newHubWorld runs the named controllers in addition, on both clusters.
func newHubWorld(t *testing.T, controllers ...string) *hubWorld {
	hub, managed := kubetest.StartNew(t), kubetest.StartNew(t)
	hub.ControllerManager(t, append(controllers, "csrsigning", "bootstrapsigner")...)
	if len(controllers) > 0 {
		managed.ControllerManager(t, controllers...)
	}
	w := &hubWorld{t: t, hubConfig: hub.Config(), managedConfig: managed.Config(), onHub: "--context=hub", onOther: "--context=managed-0", hubKubeconfig: hub.Kubeconfig(t)}
	w.documented = strings.Split(strings.TrimSpace(strings.ReplaceAll(blocks(t)[hubHeading], "\\\n", "")), "\n")
	both := clientcmdapi.NewConfig()
	for name, c := range map[string]*kubetest.Cluster{"hub": hub, "managed-0": managed} {
		config, err := clientcmd.LoadFromFile(c.Kubeconfig(t))
		if err != nil {
			t.Fatal(err)
		}
		current := config.Contexts[config.CurrentContext]
		both.Clusters[name], both.AuthInfos[name] = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
		both.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	content, err := clientcmd.Write(*both)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", writeFile(t, "kubeconfig", string(content)))
	w.hub, w.managed = w.client(w.hubConfig), w.client(w.managedConfig)
	return w
}

func (w *hubWorld) client(config *rest.Config) client.Client {
	w.t.Helper()
	c, err := cli.NewRegistrationClient(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// as returns the configuration of a ServiceAccount.
func (w *hubWorld) as(c client.Client, config *rest.Config, namespace, name string) *rest.Config {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.SubResource("token").Create(w.t.Context(), account, request); err != nil {
		w.t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = request.Status.Token
	return config
}

// run runs a manager in place of a Deployment.
func (w *hubWorld) run(config *rest.Config, setUp func(mgr ctrl.Manager) error) (stop func()) {
	w.t.Helper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: w.hub.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err == nil {
		err = setUp(mgr)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			w.t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(stop)
	return stop
}

func (w *hubWorld) runHub() (stop func()) {
	return w.run(w.as(w.hub, w.hubConfig, regname.HubNamespace, regname.HubServiceAccount), func(mgr ctrl.Manager) error {
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()}) // without bootstrap users: a person approves
		if err != nil {
			return err
		}
		hub, err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: []registration.HubDriver{driver}, Default: driver.Name()})
		if err != nil {
			return err
		}
		return hub.SetupWithManager(mgr, 1)
	})
}

func (w *hubWorld) runAgent() (stop func()) { return w.runAgentOf("managed-0") }

func (w *hubWorld) runAgentOf(cluster string) (stop func()) {
	config := w.as(w.managed, w.managedConfig, agent.DefaultNamespace, regname.AgentName)
	return w.run(config, func(mgr ctrl.Manager) error {
		agent, err := agent.New(agent.Options{Cluster: cluster, Driver: csr.New(csr.Options{}), Local: w.client(config)})
		if err != nil {
			return err
		}
		return agent.SetupWithManager(mgr)
	})
}

// document runs the next command of the documentation, and returns its arguments too.
func (w *hubWorld) document(begins string, variables ...string) (args []string, out string) {
	w.t.Helper()
	if len(w.documented) == 0 || !strings.HasPrefix(w.documented[0], "wid "+begins) {
		w.t.Fatalf("wid %s is not the first of %q", begins, w.documented)
	}
	args = strings.Fields(strings.NewReplacer(variables...).Replace(w.documented[0]))[1:]
	w.documented = w.documented[1:]
	return args, must(w.t, args...)
}

// fails runs a command that has to fail.
func (w *hubWorld) fails(code int, want string, args ...string) {
	w.t.Helper()
	out, err := wid(w.t, "", args...)
	if err == nil || cli.ExitCode(w.t.Context(), err) != code || !strings.Contains(err.Error(), want) {
		w.t.Errorf("wid %s: got %v, want code %d and %s\n%s", strings.Join(args, " "), err, code, want, out)
	}
}

func (w *hubWorld) status() (all []hubadmin.Cluster) {
	w.t.Helper()
	var list struct{ Items []hubadmin.Cluster }
	if err := json.Unmarshal([]byte(must(w.t, "hub", "status", w.onHub, "-o", "json")), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func (w *hubWorld) until(what string, done func() bool) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !done(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("within a minute it never happened that %s", what)
		}
	}
}

// A cluster joins a hub and leaves it, by the commands alone.
func TestHubCommands(t *testing.T) {
	w := newHubWorld(t)
	w.fails(cli.ExitMisconfigured, "wid hub init", "hub", "status", w.onHub)
	const image = "--image=registry.example/wid-hub:v1" // that of the documentation
	initHub := func(more ...string) string {
		return must(t, append([]string{"hub", "init", w.onHub, image, "--apply", "--hub-apiserver=" + w.hubConfig.Host}, more...)...)
	}
	first := initHub()
	if !strings.Contains(first, "wid bootstrap publish --context hub\n") || !strings.Contains(first, "with --hub-apiserver\n") || strings.Contains(first, "certificates") {
		t.Errorf("init says %s", first)
	}
	must(t, "bootstrap", "publish", "--kubeconfig="+w.hubKubeconfig)
	w.available(regname.HubNamespace, regname.HubDeployment)
	if _, out := w.document("hub init"); strings.Contains(out, "--hub-token") || !strings.Contains(out, "joins a cluster: wid hub token --context hub") {
		t.Errorf("init says %s", out)
	}
	w.checkConflicts(initHub)
	w.checkPodSecurity(w.hub, "hub", "init", image)
	w.runHub()
	if out := must(t, "hub", "status", w.onHub); out != "no clusters" {
		t.Errorf("status says %s", out)
	}

	_, line, _ := strings.Cut(first, "\n\nwid ")
	line = strings.NewReplacer("CLUSTER_NAME", "managed-0", "AGENT_IMAGE", "registry.example/x:v1", " --context CLUSTER_CONTEXT", "").Replace(strings.TrimSpace(line))
	printed := strings.Fields(line) // join --hub-token … --hub-apiserver … --ca-cert-hash …
	w.fails(cli.ExitMisconfigured, `no ManagedCluster "managed-0"`, "hub", "accept", w.onHub, "--clusters=managed-0")
	w.fails(cli.ExitMisconfigured, "wid hub status lists the clusters", "hub", "deny", w.onHub, "--clusters=managed-0")
	w.fails(cli.ExitUnavailable, "gave up waiting for the agent", "hub", "accept", w.onHub, "--clusters=managed-0", "--wait", "--timeout=1s")
	w.checkUnreachableHub()
	must(t, append(printed, w.onOther)...)
	join, out := w.document("join", `"$TOKEN"`, printed[2], `"$HUB"`, printed[4], `"$PIN"`, printed[6])
	if !strings.Contains(out, "wid hub accept --clusters managed-0 --context HUB") || strings.Contains(out, printed[2]) {
		t.Errorf("join says %s", out)
	}
	w.checkPodSecurity(w.managed, append(without(join, "--apply"), "--reveal")...)
	w.fails(cli.ExitUnavailable, "gave up waiting for the hub to let cluster", append(join, "--wait", "--timeout=3s")...)
	w.checkFirstContact(printed[2])
	stopAgent := w.runAgent()
	w.until("the agent asks for a certificate", func() bool {
		all := w.status()
		return len(all) == 1 && len(all[0].PendingRequests) == 1
	})
	if s := w.status()[0]; s.Name != "managed-0" || s.AuthType != "csr" || s.Accepted || s.Joined != "" {
		t.Errorf("status is %+v", s)
	}
	w.checkIntruder()
	if _, out := w.document("hub accept"); !strings.Contains(out, `of user "system:bootstrap:`) || !strings.Contains(out, `cluster "managed-0" has joined`) {
		t.Errorf("accept says %s", out)
	}
	must(t, append(join, "--wait")...)
	if out := must(t, join...); !strings.HasSuffix(out, "\nThe cluster is already accepted") {
		t.Errorf("join says %s", out)
	}
	w.until("the cluster is available", func() bool { s := w.status()[0]; return s.Accepted && s.Joined == "True" && s.Available == "True" })
	_, table := w.document("hub status")
	if fields := strings.Join(strings.Fields(table), " "); !strings.Contains(fields, "managed-0 csr true True True ") || !strings.HasSuffix(fields, "s 0 -") {
		t.Errorf("status is\n%s", table)
	}
	if _, out := w.document("hub token"); !strings.Contains(out, printed[6]+" --cluster-name managed-1 --image registry.example/wid-agent:v1 --context CLUSTER_CONTEXT --apply") {
		t.Errorf("token says %s", out)
	}

	w.checkLostCertificate()

	w.fails(cli.ExitMisconfigured, `registered as "managed-0", not as "managed-1"`, "unjoin", w.onOther, "--cluster-name=managed-1")
	w.fails(cli.ExitMisconfigured, `registered as "managed-0", not as "managed-1"`, append(join, "--cluster-name=managed-1")...)
	if _, out := w.document("unjoin"); !strings.Contains(out, "withdrawn") || !strings.Contains(out, "Secret") {
		t.Errorf("unjoin says %s", out)
	}
	w.until("the hub takes away the access", func() bool { s := w.status()[0]; return !s.Accepted && s.Reason == ocm.ReasonHubDenied })
	if _, out := w.document("hub cleanup"); out != "none denied for 1h" {
		t.Errorf("cleanup says %s", out)
	}
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ocm.HubKubeconfigSecret}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: agent.DefaultBootstrapSecret}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: regname.AgentName}},
	} {
		if err := w.managed.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: object.GetName()}, object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
	stopAgent()
	left := w.checkAddOns(printed)
	out = must(t, "unjoin", w.onOther, "--cluster-name=managed-0", "--purge")
	for _, want := range []string{"wid hub deny --clusters managed-0", `Namespace "open-cluster-management-agent" deleted`,
		`Role "open-cluster-management-agent-addon/registration-agent-addon" deleted`, `Secret "open-cluster-management-agent-addon/search-hub-kubeconfig" deleted`} {
		if !strings.Contains(out, want) {
			t.Errorf("unjoin says no %s: %s", want, out)
		}
	}
	if err := w.managed.Get(t.Context(), client.ObjectKeyFromObject(left), left); err != nil {
		t.Errorf("the Secret of another cluster: %v", err)
	}
	must(t, "hub", "accept", w.onHub, "--clusters=managed-0")
	w.until("the hub lets it in", func() bool { return w.status()[0].Condition == "True" })
	must(t, "hub", "deny", w.onHub, "--clusters=managed-0,managed-0")
	w.until("the hub takes away the access", func() bool { return w.status()[0].Condition == "False" })
	if len(w.documented) > 0 {
		t.Errorf("not tried: %q", w.documented)
	}
}

// checkAddOns lets add-ons have tokens, and returns the Secret of an add-on of another cluster. The programs of the Deployments do not run
// here: examples/registration shows them.
func (w *hubWorld) checkAddOns(printed []string) *corev1.Secret {
	w.t.Helper()
	w.document("hub init")
	w.document("join", `"$TOKEN"`, printed[2], `"$HUB"`, printed[4], `"$PIN"`, printed[6])
	for _, row := range []struct {
		in              client.Client
		namespace, name string
		arg             string
		role            client.Object
	}{
		{w.hub, regname.HubNamespace, regname.HubDeployment, "--addon-registration-auth=csr,token", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:hub:token"}}},
		{w.managed, agent.DefaultNamespace, regname.AgentName, "--addon-kubeclient-registration-auth=token",
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultAddOnNamespace, Name: "registration-agent-addon"}}},
	} {
		deployment := &appsv1.Deployment{}
		if err := errors.Join(row.in.Get(w.t.Context(), client.ObjectKeyFromObject(row.role), row.role),
			row.in.Get(w.t.Context(), client.ObjectKey{Namespace: row.namespace, Name: row.name}, deployment)); err != nil {
			w.t.Fatal(err)
		}
		if args := deployment.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, row.arg) {
			w.t.Errorf("args of %s: %q", row.name, args)
		}
	}
	for cluster, name := range map[string]string{"managed-0": "search-hub-kubeconfig", "managed-1": "other"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultAddOnNamespace, Name: name,
			Labels: map[string]string{addon.NameLabel: "search", regname.AddOnClusterLabel: cluster}}}
		if err := w.managed.Create(w.t.Context(), secret); err != nil {
			w.t.Fatal(err)
		}
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultAddOnNamespace, Name: "other"}}
}

// available plays the kubelet.
func (w *hubWorld) available(namespace, name string) {
	w.t.Helper()
	deployment := &appsv1.Deployment{}
	if err := w.hub.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, deployment); err != nil {
		w.t.Fatal(err)
	}
	deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	if err := w.hub.Status().Update(w.t.Context(), deployment); err != nil {
		w.t.Fatal(err)
	}
}

// checkConflicts lets another program change what init has applied.
func (w *hubWorld) checkConflicts(initHub func(...string) string) {
	w.t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := w.hub.Get(w.t.Context(), client.ObjectKey{Name: regname.BootstrapRole}, role); err != nil {
		w.t.Fatal(err)
	}
	role.Rules = role.Rules[:1]
	if err := w.hub.Update(w.t.Context(), role); err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{"managedclusters.cluster.open-cluster-management.io", "managedclusteraddons.addon.open-cluster-management.io"} {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName(name)
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"names":{"shortNames":["mcl"]}}}`))
		if err := w.hub.Patch(w.t.Context(), crd, patch); err != nil {
			w.t.Fatal(err)
		}
	}
	w.fails(cli.ExitDenied, "--force-conflicts", "hub", "init", w.onHub, "--image=registry.example/wid-hub:v1", "--apply")
	if out := initHub("--force-conflicts"); strings.Count(out, "io\" left as it is") != 2 {
		w.t.Errorf("init says %s", out)
	}
	if err := w.hub.Get(w.t.Context(), client.ObjectKeyFromObject(role), role); err != nil || len(role.Rules) != 3 {
		w.t.Errorf("the role has %d rules, %v", len(role.Rules), err)
	}
}

// checkPodSecurity creates the pods of a printed Deployment where the Restricted Pod Security Standard is enforced.
func (w *hubWorld) checkPodSecurity(c client.Client, args ...string) {
	w.t.Helper()
	objects, err := manifests.Parse(must(w.t, args...))
	if err != nil {
		w.t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[len(objects)-1].Object, &deployment); err != nil {
		w.t.Fatal(err)
	}
	w.checkRestricted(c, deployment.Namespace, deployment.Spec.Template)
}

// checkRestricted creates a pod of a template where that standard is enforced.
func (w *hubWorld) checkRestricted(c client.Client, in string, template corev1.PodTemplateSpec) {
	w.t.Helper()
	namespace := &corev1.Namespace{}
	if err := c.Get(w.t.Context(), client.ObjectKey{Name: in}, namespace); err != nil {
		w.t.Fatal(err)
	}
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, "pod-security.kubernetes.io/enforce", "restricted")
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = in, "pod"
	if err := errors.Join(c.Update(w.t.Context(), namespace), c.Create(w.t.Context(), pod, client.DryRunAll)); err != nil {
		w.t.Error(err)
	}
}

// checkFirstContact joins with other credentials.
func (w *hubWorld) checkFirstContact(bootstrapToken string) {
	w.t.Helper()
	ca := writeFile(w.t, "ca.crt", string(w.hubConfig.CAData))
	with := func(token, how string) []string {
		return []string{"join", "--cluster-name=managed-0", "--image=x", "--hub-apiserver=" + w.hubConfig.Host, "--hub-token=" + token, how}
	}
	for _, name := range []string{"agent-registration-bootstrap", "other"} {
		for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management"}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management", Name: name}}} {
			if err := w.hub.Create(w.t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
				w.t.Fatal(err)
			}
		}
	}
	token := w.as(w.hub, w.hubConfig, "open-cluster-management", "agent-registration-bootstrap").BearerToken
	if _, err := manifests.Parse(must(w.t, with(token, "--ca-file="+ca)...)); err != nil {
		w.t.Error(err)
	}
	stranger := w.as(w.hub, w.hubConfig, "open-cluster-management", "other").BearerToken
	w.fails(cli.ExitDenied, regname.BootstrapRole, with(stranger, "--ca-file="+ca)...)
	w.fails(cli.ExitUnavailable, "renew the token", with("abcdef.0123456789abcdef", "--ca-file="+ca)...)
	w.fails(cli.ExitDenied, "pins", with(bootstrapToken, "--ca-cert-hash=sha256:"+strings.Repeat("ab", 32))...)
	w.checkHintOfTheDoctor(with(bootstrapToken, "--ca-cert-hash=sha256:"+strings.Repeat("ab", 32)), bootstrapToken)
}

// checkHintOfTheDoctor runs the command that a failed discovery prints.
func (w *hubWorld) checkHintOfTheDoctor(join []string, token string) {
	w.t.Helper()
	_, err := wid(w.t, "", join...)
	if err == nil || strings.Contains(err.Error(), token) {
		w.t.Fatalf("join says %v", err)
	}
	_, hint, _ := strings.Cut(err.Error(), "run: wid ")
	out, err := wid(w.t, "", strings.Fields(strings.Replace(hint, "TOKEN", token, 1))...)
	if err == nil || !strings.Contains(out, "CANotPinned]") {
		w.t.Errorf("wid %s: %v\n%s", hint, err, out)
	}
}

// checkUnreachableHub leaves a hub that is gone.
func (w *hubWorld) checkUnreachableHub() {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: agent.DefaultNamespace}
	if err := w.managed.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: meta}); err != nil {
		w.t.Fatal(err)
	}
	meta.Namespace = meta.Name
	for _, meta.Name = range []string{agent.DefaultBootstrapSecret, ocm.HubKubeconfigSecret} {
		kubeconfig := kubeconfigOf(w.t, "https://127.0.0.1:1", nil, nil, nil, "hunter2")
		if err := w.managed.Create(w.t.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"kubeconfig": kubeconfig}}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.fails(cli.ExitUnavailable, "--force", "unjoin", w.onOther, "--cluster-name=managed-0")
	if out := must(w.t, "unjoin", w.onOther, "--cluster-name=managed-0", "--force"); !strings.Contains(out, "wid hub deny --clusters managed-0") ||
		strings.Count(out, "deleted") != 2 || strings.Contains(out, "hunter2") {
		w.t.Errorf("unjoin says %s", out)
	}
}

// checkLostCertificate deletes the agent's Secret: a person has to approve its request again.
func (w *hubWorld) checkLostCertificate() {
	w.t.Helper()
	lost := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret}}
	if err := w.managed.Delete(w.t.Context(), lost); err != nil {
		w.t.Fatal(err)
	}
	w.until("the agent asks for another certificate", func() bool { return len(w.status()[0].PendingRequests) == 1 })
	request := w.status()[0].PendingRequests[0].Name
	w.fails(cli.ExitDenied, "may be that of an intruder", "hub", "accept", w.onHub, "--clusters=managed-0")
	if out := must(w.t, "hub", "accept", w.onHub, "--clusters=managed-0", "--approve-request="+request); !strings.Contains(out, "approved") {
		w.t.Errorf("accept says %s", out)
	}
	w.until("the agent has a certificate", func() bool {
		err := w.managed.Get(w.t.Context(), client.ObjectKeyFromObject(lost), lost)
		return err == nil && len(lost.Data["tls.crt"]) > 0
	})
}

// checkIntruder makes a second request for the cluster's certificate.
func (w *hubWorld) checkIntruder() {
	w.t.Helper()
	in := registration.Input{Now: time.Now(), Cluster: "managed-0", Agent: "intruder", Hub: w.hub}
	for range 2 {
		step, err := csr.New(csr.Options{}).Next(w.t.Context(), in)
		if err != nil {
			w.t.Fatal(err)
		}
		in.State = step.State
	}
	w.fails(cli.ExitDenied, `of user "admin"`, "hub", "accept", w.onHub, "--clusters=managed-0", "--wait")
	if w.status()[0].Accepted {
		w.t.Error("accepted")
	}
	all, err := agentrequest.Pending(w.t.Context(), w.hub, "managed-0")
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range all {
		if strings.HasPrefix(all[i].Spec.Username, "system:bootstrap:") {
			continue
		}
		all[i].Status.Conditions = append(all[i].Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Intruder"})
		if err := w.hub.SubResource("approval").Update(w.t.Context(), &all[i]); err != nil {
			w.t.Fatal(err)
		}
	}
}

func without(args []string, arg string) (rest []string) {
	for _, a := range args {
		if a != arg {
			rest = append(rest, a)
		}
	}
	return rest
}
