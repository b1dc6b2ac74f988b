package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/hubcmd"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// hubEnvironment is a hub and a cluster that are real API servers, on which the
// commands of the pages install everything. The programs of the Deployments run
// in this process.
type hubEnvironment struct {
	t              *testing.T
	cluster        *kubetest.Cluster // the hub
	hub, managed   client.Client     // of administrators
	hubConfig      *rest.Config
	managedConfig  *rest.Config
	onHub, onOther string // flags
}

// newHubEnvironment runs the named controllers in addition, on both clusters.
func newHubEnvironment(t *testing.T, controllers ...string) *hubEnvironment {
	hub, managed := kubetest.StartNew(t), kubetest.StartNew(t)
	hub.ControllerManager(t, append(controllers, "csrsigning", "bootstrapsigner")...)
	if len(controllers) > 0 {
		managed.ControllerManager(t, controllers...)
	}
	w := &hubEnvironment{t: t, cluster: hub, hubConfig: hub.Config(), managedConfig: managed.Config(),
		onHub: "--context=hub", onOther: "--context=managed-0"}
	both := clientcmdapi.NewConfig()
	for name, c := range map[string]*kubetest.Cluster{"hub": hub, "managed-0": managed} {
		addContext(t, both, name, c)
	}
	content, err := clientcmd.Write(*both)
	regtest.Must(t, err)
	t.Setenv("KUBECONFIG", writeFile(t, "kubeconfig", string(content)))
	w.hub, w.managed = w.client(w.hubConfig), w.client(w.managedConfig)
	return w
}

// addContext adds the administrator of a cluster.
func addContext(t *testing.T, to *clientcmdapi.Config, name string, c *kubetest.Cluster) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig(t))
	regtest.Must(t, err)
	current := config.Contexts[config.CurrentContext]
	to.Clusters[name], to.AuthInfos[name] = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	to.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
}

// another returns the environment with another hub for the same managed
// cluster.
func (w *hubEnvironment) another(name string) *hubEnvironment {
	w.t.Helper()
	other := *w
	other.cluster, other.onHub = kubetest.StartNew(w.t), "--context="+name
	other.cluster.ControllerManager(w.t, "csrsigning", "bootstrapsigner")
	other.hubConfig = other.cluster.Config()
	other.hub = w.client(other.hubConfig)
	config, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	regtest.Must(w.t, err)
	addContext(w.t, config, name, other.cluster)
	regtest.Must(w.t, clientcmd.WriteToFile(*config, os.Getenv("KUBECONFIG")))
	return &other
}

func (w *hubEnvironment) client(config *rest.Config) client.Client {
	w.t.Helper()
	return regtest.NewClient(w.t, config)
}

// as returns the configuration of a ServiceAccount.
func (w *hubEnvironment) as(c client.Client, config *rest.Config, namespace, name string) *rest.Config {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	regtest.Must(w.t, c.SubResource("token").Create(w.t.Context(), account, request))
	return regtest.WithToken(config, request.Status.Token)
}

// run runs a manager in place of a Deployment.
func (w *hubEnvironment) run(config *rest.Config, setUp func(mgr ctrl.Manager) error) (stop func()) {
	w.t.Helper()
	mgr, err := ctrl.NewManager(config,
		ctrl.Options{Scheme: w.hub.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err == nil {
		err = setUp(mgr)
	}
	regtest.Must(w.t, err)
	return regtest.RunManager(w.t, mgr)
}

// runHub runs the hub program. A person approves the requests of clusters.
func (w *hubEnvironment) runHub(options hub.Options) (stop func()) {
	return w.run(w.as(w.hub, w.hubConfig, ocm.HubNamespace, ocm.HubServiceAccount), func(mgr ctrl.Manager) error {
		options.Client, options.Recorder = mgr.GetClient(), mgr.GetEventRecorder("hub")
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: options.Client, Reader: mgr.GetAPIReader(),
			Events: options.Recorder})
		if err != nil {
			return err
		}
		options.Drivers, options.Default = []registration.HubDriver{driver}, driver.Name()
		hub, err := hub.New(options)
		if err != nil {
			return err
		}
		return hub.SetupWithManager(mgr, 1)
	})
}

func (w *hubEnvironment) runAgent(cluster string) (stop func()) {
	return w.runAgentIn(agent.DefaultNamespace, cluster)
}

func (w *hubEnvironment) runAgentIn(namespace, cluster string) (stop func()) {
	config := w.as(w.managed, w.managedConfig, namespace, ocm.AgentName)
	return w.run(config, func(mgr ctrl.Manager) error {
		agent, err := agent.New(agent.Options{Cluster: cluster, Driver: csr.New(csr.Options{}), Local: w.client(config),
			Namespace: namespace, Recorder: mgr.GetEventRecorder("agent")})
		if err != nil {
			return err
		}
		return agent.SetupWithManager(mgr)
	})
}

// runKubelet reports the replicas of all Deployments of both clusters as
// available.
func (w *hubEnvironment) runKubelet() {
	w.t.Helper()
	ctx, clusters := w.t.Context(), []client.Client{w.hub, w.managed}
	var running sync.WaitGroup
	w.t.Cleanup(running.Wait)
	running.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, c := range clusters {
				var list appsv1.DeploymentList
				_ = c.List(ctx, &list) // or at the next tick
				for _, d := range list.Items {
					if n := *d.Spec.Replicas; d.Status.ObservedGeneration < d.Generation {
						d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n,
							ReadyReplicas: n, AvailableReplicas: n,
							Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}}
						_ = c.Status().Update(ctx, &d) // or at the next tick
					}
				}
			}
			<-tick.C
		}
	})
}

// fails runs a command that has to fail.
func fails(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	out, err := wid(t, "", args...)
	if err == nil || cli.ExitCode(t.Context(), err) != code || !strings.Contains(err.Error(), want) {
		t.Errorf("wid %s: got %v, want code %d and %s\n%s", strings.Join(args, " "), err, code, want, out)
	}
}

// statusOf returns the clusters that status lists.
func statusOf(t *testing.T, args ...string) []hubcmd.Cluster {
	t.Helper()
	var list struct{ Items []hubcmd.Cluster }
	regtest.Must(t, json.Unmarshal([]byte(must(t, append([]string{"hub", "status", "-o", "json"}, args...)...)), &list))
	return list.Items
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	regtest.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// documented is a section of a page. Its commands run word for word and in
// their order.
type documented struct {
	*hubEnvironment
	programs *environment
	left     []string
}

// document returns the commands of sections.
func (w *hubEnvironment) document(section document.Page, more ...document.Page) *documented {
	w.t.Helper()
	d := &documented{hubEnvironment: w, programs: newEnvironment(w.t), left: section.Commands()}
	for _, next := range more {
		d.left = append(d.left, next.Commands()...)
	}
	return d
}

// try runs a command of the page, and returns all that it prints.
func (d *documented) try(command string, env ...string) result {
	d.t.Helper()
	return d.programs.exec(d.t, "", append(env, "KUBECONFIG="+os.Getenv("KUBECONFIG")), "bash", "-euo", "pipefail",
		"-c", command)
}

// next runs the next command, which begins so, and returns what it prints.
func (d *documented) next(begins string, env ...string) string {
	d.t.Helper()
	if len(d.left) == 0 || !strings.HasPrefix(d.left[0], begins) {
		d.t.Fatalf("%s is not the first of %q", begins, d.left)
	}
	r := d.try(d.left[0], env...)
	if r.code != 0 {
		d.t.Fatalf("%s: %+v", d.left[0], r)
	}
	d.left = d.left[1:]
	return r.stdout + r.stderr
}

// expectAllTried expects that no command of the page is left.
func (d *documented) expectAllTried() {
	d.t.Helper()
	if len(d.left) > 0 {
		d.t.Errorf("not tried: %q", d.left)
	}
}

// joinVariables returns the variables of the documented wid join, from the line
// that wid hub init or wid hub token has printed.
func joinVariables(t *testing.T, printed string) []string {
	t.Helper()
	_, line, _ := strings.Cut(printed, "\nwid join ")
	fields := strings.Fields(line)
	var variables []string
	for _, v := range [][2]string{{"TOKEN", "--hub-token"}, {"HUB", "--hub-apiserver"}, {"PIN", "--ca-cert-hash"}} {
		at := slices.Index(fields, v[1])
		if at < 0 || at+1 == len(fields) {
			t.Fatalf("no %s in %s", v[1], printed)
		}
		variables = append(variables, v[0]+"="+fields[at+1])
	}
	return variables
}
