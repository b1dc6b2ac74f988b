package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/agentrequest"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// remedied is a hub and a cluster whose faults the printed commands mend.
type remedied struct {
	*hubWorld
	filled []string // words in capitals, each with its value
}

func (r *remedied) examine() *doctor.Report {
	r.t.Helper()
	out, _ := wid(r.t, "", "doctor", "registration", "--cluster-name=managed-0", "--hub-context=hub", "--context=managed-0", "-o=json")
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(out), report); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	return report
}

// headline waits for the reason of the headline, "" for a report without one.
func (r *remedied) headline(reason string) (f *doctor.Finding) {
	r.t.Helper()
	var report *doctor.Report
	defer func() {
		if r.t.Failed() {
			r.t.Logf("%s", report.Text(doctor.TextOptions{Verbose: true}))
		}
	}()
	r.until("the headline is "+reason, func() bool {
		report = r.examine()
		f = report.Worst()
		return f == nil && reason == "" || f != nil && f.Class == reason
	})
	return f
}

// mend runs the remedy of the headline, and waits until the fault is gone. No pod runs here, so there are no logs.
func (r *remedied) mend(reason string) {
	r.t.Helper()
	commands := r.headline(reason).Remedy.Commands
	if len(commands) == 0 {
		r.t.Errorf("%s has no command", reason)
	}
	if reason == "AlreadyJoined" {
		commands = commands[:1] // the second one is the alternative
	}
	for _, command := range commands {
		if !strings.Contains(command, " logs ") {
			r.shell(command)
		}
	}
}

func (r *remedied) mended(reason string) {
	r.t.Helper()
	r.mend(reason)
	r.until(reason+" is gone", func() bool {
		f := r.examine().Worst()
		return f == nil || f.Class != reason
	})
}

func (r *remedied) shell(command string) {
	r.t.Helper()
	command = strings.NewReplacer(r.filled...).Replace(command)
	if arguments, ok := strings.CutPrefix(command, "wid "); ok {
		out := must(r.t, strings.Fields(arguments)...)
		if _, line, ok := strings.Cut(out, "\n\nwid join "); ok && strings.HasPrefix(arguments, "hub token") { // run in the cluster, with the image of the agent
			line = strings.NewReplacer("AGENT_IMAGE", "registry.example/wid-agent:v1", "CLUSTER_CONTEXT", "managed-0").Replace(line)
			must(r.t, append([]string{"join"}, strings.Fields(line)...)...)
		}
		return
	}
	line := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), command)
	if out, err := exec.CommandContext(r.t.Context(), "/bin/sh", "-c", line).CombinedOutput(); err != nil { //nolint:gosec // a command of the doctor
		r.t.Errorf("%s: %v: %s", command, err, out)
	}
}

// runProgram runs the hub as its Deployment does.
func (r *remedied) runProgram() (stop func()) {
	return r.run(r.as(r.hub, r.hubConfig, regname.HubNamespace, regname.HubServiceAccount), func(mgr ctrl.Manager) error {
		driver, err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), BootstrapGroups: []string{registration.BootstrapGroup},
			Events: mgr.GetEventRecorder("hub")})
		if err != nil {
			return err
		}
		h, err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: []registration.HubDriver{driver}, Default: driver.Name()})
		if err != nil {
			return err
		}
		return h.SetupWithManager(mgr, 1)
	})
}

// agentIsUp plays the kubelet.
func (r *remedied) agentIsUp() {
	r.t.Helper()
	d := &appsv1.Deployment{}
	if err := r.managed.Get(r.t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: regname.AgentName}, d); err != nil {
		r.t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	if err := r.managed.Status().Update(r.t.Context(), d); err != nil {
		r.t.Fatal(err)
	}
}

func (r *remedied) secret(name string) *corev1.Secret {
	r.t.Helper()
	s := &corev1.Secret{}
	if err := r.managed.Get(r.t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: name}, s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *remedied) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// bootstrapUser is a client of the hub with another user of the bootstrap group.
func (r *remedied) bootstrapUser(name string) client.Client {
	config := rest.CopyConfig(r.hubConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{registration.BootstrapGroup, "system:authenticated"}}
	return r.client(config)
}

// Each fault of a registration is gone once the printed commands have run, on two real API servers.
func TestRegistrationRemedies(t *testing.T) {
	r := &remedied{hubWorld: newHubWorld(t)}
	r.must(addon.AddToScheme(r.hub.Scheme())) // as the hub program does
	must(t, "bootstrap", "publish", "--kubeconfig="+r.hubKubeconfig)
	must(t, "hub", "init", r.onHub, "--image=registry.example/wid-hub:v1", "--apply", "--hub-apiserver="+r.hubConfig.Host)
	r.filled = []string{"HUB_IMAGE", "registry.example/wid-hub:v1"}
	stopHub := r.runProgram()

	r.mended("AgentMissing")
	r.mend("AgentNotRunning")
	r.agentIsUp()
	r.mend("AgentNeverArrived")
	stopAgent := r.runAgent()
	r.mended("NotAccepted")
	r.headline("")

	r.denied(&stopHub)
	r.agentLostItsCredential(&stopAgent)
	r.requests(&stopAgent)
	r.addOns()
	r.claims()
	r.deleted(&stopAgent)
	stopAgent()
	stopHub()
}

func (r *remedied) denied(stopHub *func()) {
	must(r.t, "hub", "deny", r.onHub, "--clusters=managed-0")
	r.mended("HubClusterAdminDenied")
	r.headline("")
	(*stopHub)()
	must(r.t, "hub", "deny", r.onHub, "--clusters=managed-0")
	r.mend("HubNotActing")
	*stopHub = r.runProgram()
	r.mended("HubClusterAdminDenied")
	r.headline("")
}

func (r *remedied) agentLostItsCredential(stopAgent *func()) {
	r.must(r.managed.Delete(r.t.Context(), r.secret(agent.DefaultBootstrapSecret)))
	r.mended("BootstrapSecretMissing")
	r.agentIsUp()
	r.headline("")
	(*stopAgent)()
	own := r.secret(ocm.HubKubeconfigSecret)
	own.Data["tls.crt"] = []byte("x")
	r.must(r.managed.Update(r.t.Context(), own))
	r.mended("HubKubeConfigUnusable")
	*stopAgent = r.runAgent()
	r.mended("AlreadyJoined")
	r.headline("")
	(*stopAgent)()
	lease := &coordinationv1.Lease{}
	r.must(r.hub.Get(r.t.Context(), client.ObjectKey{Namespace: "managed-0", Name: ocm.LeaseName}, lease))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
	r.must(r.hub.Update(r.t.Context(), lease))
	r.mend(regname.ReasonLeaseStopped)
	r.agentIsUp()
	*stopAgent = r.runAgent()
	r.headline("")
}

func (r *remedied) requests(stopAgent *func()) {
	(*stopAgent)()
	r.must(r.managed.Delete(r.t.Context(), r.secret(ocm.HubKubeconfigSecret)))
	r.mend("HubKubeConfigSecretMissing")
	*stopAgent = r.runAgent()
	r.headline("AlreadyJoined")
	pending, err := agentrequest.Pending(r.t.Context(), r.hub, "managed-0")
	if err != nil || len(pending) != 1 {
		r.t.Fatalf("%d pending, %v", len(pending), err)
	}
	pending[0].Status.Conditions = append(pending[0].Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Mistake"})
	r.must(r.hub.SubResource("approval").Update(r.t.Context(), &pending[0]))
	r.mended("ClientCertificateDenied")
	(*stopAgent)() // which looks again in ten minutes
	*stopAgent = r.runAgent()
	r.mended("AlreadyJoined")
	r.headline("")

	// The agent that works turns these into warnings.
	intruder := regtest.Ask(r.t, r.hub, r.bootstrapUser("system:bootstrap:other0"), "managed-0", "intruder")
	if f := r.headline("AlreadyJoined"); f.Result != doctor.Warn || !strings.Contains(f.Remedy.Commands[0], "certificate deny "+intruder) {
		r.t.Errorf("%+v", f)
	}
	r.mended("AlreadyJoined")
	r.headline("")
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		regtest.Ask(r.t, r.hub, r.bootstrapUser("system:bootstrap:other0"), "managed-0", "rival-"+name)
	}
	r.mended("TooManyRequests")
	regtest.Ask(r.t, r.hub, r.hub, "managed-0", "stranger") // an administrator is no bootstrap user
	r.mended("UnknownRequester")
	r.headline("")
}

func (r *remedied) addOns() {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": addon.GroupVersion.String(), "kind": "ManagedClusterAddOn",
		"metadata": map[string]any{"namespace": "managed-0", "name": "search"}}}
	r.must(r.hub.Create(r.t.Context(), o))
	r.askForAddOn()
	r.mended("ClientCertificateNotApproved")
	o.Object["status"] = map[string]any{"registrations": []any{map[string]any{"type": "kubeClient", "kubeClient": map[string]any{"driver": "token",
		"subject": map[string]any{"user": "system:serviceaccount:managed-0:managed-0-search-agent"}}}}}
	r.must(r.hub.Status().Update(r.t.Context(), o))
	r.mend("TokenInfrastructureNotReady")
	d := &appsv1.Deployment{}
	r.must(r.hub.Get(r.t.Context(), client.ObjectKey{Namespace: regname.HubNamespace, Name: regname.HubDeployment}, d))
	if c := d.Spec.Template.Spec.Containers[0]; c.Image != "registry.example/wid-hub:v1" || !slices.Contains(c.Args, "--addon-registration-auth=csr,token") {
		r.t.Errorf("%+v", c)
	}
	stop := r.run(r.as(r.hub, r.hubConfig, regname.HubNamespace, regname.HubServiceAccount), func(mgr ctrl.Manager) error {
		tokens, err := token.NewHub(token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
		if err != nil {
			return err
		}
		return tokens.SetupWithManager(mgr, 1)
	})
	r.headline("")
	r.must(r.hub.Delete(r.t.Context(), o))
	stop()
}

// askForAddOn makes the request of an add-on, as its agent.
func (r *remedied) askForAddOn() {
	name := string(r.secret(ocm.HubKubeconfigSecret).Data[regname.SecretKeyAgentName])
	config := rest.CopyConfig(r.hubConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: registration.AgentUser("managed-0", name), Groups: append(registration.ClusterGroups("managed-0"), "system:authenticated")}
	in := registration.Input{Now: time.Now(), Cluster: "managed-0", Agent: name, Addon: "search", Item: ocm.Registration{Type: ocm.KubeClient, Driver: registration.AuthTypeCSR}, Hub: r.client(config)}
	for range 3 { // declares the driver, draws a key, makes the request
		step, err := csr.New(csr.Options{}).Next(r.t.Context(), in)
		r.must(err)
		if in.State = step.State; step.Declare != nil {
			in.Item = *step.Declare
		}
	}
}

// claims has the ManagedCluster claim something that is no ARN.
func (r *remedied) claims() {
	r.shell("kubectl --context hub annotate managedcluster managed-0 eks-managed-cluster-arn=x")
	r.mend("InvalidClaim")
	r.shell("kubectl --context hub annotate managedcluster managed-0 eks-managed-cluster-arn-")
	r.headline("")
}

func (r *remedied) deleted(stopAgent *func()) {
	cluster := &ocm.ManagedCluster{}
	key := client.ObjectKey{Name: "managed-0"}
	r.must(r.hub.Get(r.t.Context(), key, cluster))
	cluster.Finalizers = append(cluster.Finalizers, "example.org/wait")
	r.must(r.hub.Update(r.t.Context(), cluster))
	r.must(r.hub.Delete(r.t.Context(), cluster))
	r.mend("Deleting")
	(*stopAgent)()
	r.until("the finalizer is gone", func() bool {
		if r.hub.Get(r.t.Context(), key, cluster) != nil {
			return true
		}
		cluster.Finalizers = slices.DeleteFunc(cluster.Finalizers, func(f string) bool { return f == "example.org/wait" })
		return r.hub.Update(r.t.Context(), cluster) == nil
	})
	r.must(r.managed.Delete(r.t.Context(), r.secret(agent.DefaultBootstrapSecret))) // as if its token had expired
	r.mend("NoManagedCluster")
	*stopAgent = r.runAgent()
	r.mended("NotAccepted")
}
