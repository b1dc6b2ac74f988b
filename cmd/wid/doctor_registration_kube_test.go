package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

const (
	hubImage   = "registry.example/wid-hub:v1"
	agentImage = "registry.example/wid-agent:v1"
)

// takeovers are the reasons for which the hub leaves the request of an agent
// that lost its credential to a person.
var takeovers = []string{"AlreadyJoined", "AnotherAgent", "AnotherKey"}

// broken is a hub and a cluster, whose faults the printed commands mend.
type broken struct{ *hubEnvironment }

func (b *broken) arguments(flags ...string) []string {
	return append([]string{"doctor", "registration", "--cluster-name=managed-0", "--hub-context=hub",
		"--context=managed-0"}, flags...)
}

func (b *broken) report(flags ...string) string {
	b.t.Helper()
	out, _ := wid(b.t, "", b.arguments(flags...)...) // exits with its verdict
	return out
}

func (b *broken) examine() *doctor.Report {
	b.t.Helper()
	report := &doctor.Report{}
	if out := b.report("-o=json"); json.Unmarshal([]byte(out), report) != nil {
		b.t.Fatalf("%s", out)
	}
	return report
}

// headlineOf returns the reason of the headline, "" for a healthy report, and
// its commands.
func headlineOf(report *doctor.Report) (reason string, commands []string) {
	said := report.Summary()
	return said.Class, said.Remedy.Commands
}

// shows waits for one of the reasons as the headline, and for a text in the
// report, which fits an 80-column terminal and prints no command that harms.
func (b *broken) shows(text string, reasons ...string) (commands []string) {
	b.t.Helper()
	reason := ""
	defer func() {
		if !slices.Contains(reasons, reason) {
			b.t.Logf("the headline is %q:\n%s", reason, b.report())
		}
	}()
	var report *doctor.Report
	b.until("the headline is "+strings.Join(reasons, " or "), func() bool {
		report = b.examine()
		reason, commands = headlineOf(report)
		return slices.Contains(reasons, reason)
	})
	out := b.report()
	if !strings.Contains(strings.Join(strings.Fields(out), " "), text) {
		b.t.Errorf("the report lacks %q:\n%s", text, out)
	}
	b.t.Logf("%s\n%s", strings.Join(reasons, " "), out)
	b.harmless(report)
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "wid ") && !strings.Contains(line, "kubectl ") &&
			len([]rune(strings.TrimRight(line, "\n"))) > 80 && !strings.HasPrefix(line, "✗ ") {
			b.t.Errorf("a line has more than 80 columns: %s", line)
		}
	}
	return commands
}

// harmful is the verb of a command that changes what a person has to decide, ""
// if there is none. Flags and their values come anywhere.
func harmful(command string) string {
	words := strings.Fields(command)
	for _, word := range words {
		if slices.Contains([]string{"approve", "deny", "delete", "bind", "rolebinding", "clusterrolebinding", "edit", "patch",
			"apply", "annotate", "label"}, word) {
			return word
		}
	}
	if len(words) > 1 && words[0] == "kubectl" && slices.Contains(words, "create") {
		return "create"
	}
	return ""
}

// harmless looks at all commands of a report, those of each Event too.
func (b *broken) harmless(report *doctor.Report) {
	b.t.Helper()
	var commands []string
	for i := range report.Findings {
		f := &report.Findings[i]
		commands = append(commands, f.Remedy.Commands...)
		for _, e := range f.Events {
			commands = append(commands, e.Remedy.Commands...)
		}
	}
	for _, command := range commands {
		if verb := harmful(command); verb != "" {
			b.t.Errorf("the report prints %q: %s", verb, command)
		}
	}
}

// cured runs the printed commands as they are, with the images filled in, and
// waits until the headline is another.
func (b *broken) cured(text string, reasons ...string) {
	b.t.Helper()
	for _, command := range b.shows(text, reasons...) {
		b.shell(command)
	}
	b.until("the fault is gone", func() bool {
		reason, _ := headlineOf(b.examine())
		return !slices.Contains(reasons, reason)
	})
}

// looked runs the commands that look.
func (b *broken) looked(text string, reasons ...string) {
	b.t.Helper()
	for _, command := range b.shows(text, reasons...) {
		b.shell(command)
	}
}

// healthy waits for a report in which nothing is wrong or unknown, and returns
// it for 80 columns.
func (b *broken) healthy() string {
	b.t.Helper()
	out := ""
	b.until("wid exits with 0", func() bool {
		var err error
		out, err = wid(b.t, "", b.arguments()...)
		return err == nil
	})
	if !strings.Contains(out, "✓ credential") {
		b.t.Errorf("%s", out)
	}
	return out
}

func (b *broken) shell(command string) {
	b.t.Helper()
	if arguments, ok := strings.CutPrefix(strings.ReplaceAll(command, "HUB_IMAGE", hubImage), "wid "); ok {
		out := must(b.t, strings.Fields(arguments)...)
		if strings.HasPrefix(arguments, "hub token") {
			must(b.t, joinLine(b.t, out)...)
			b.agentIsUp()
		}
		return
	}
	if strings.Contains(command, " logs ") || strings.HasPrefix(command, "timedatectl") {
		return // no Pod runs here, and no clock is wrong
	}
	line := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), command)
	if out, err := exec.CommandContext(b.t.Context(), "/bin/sh", "-c",
		line).CombinedOutput(); err != nil { //nolint:gosec // a command of the doctor
		b.t.Errorf("%s: %v: %s", command, err, out)
	}
}

// joinLine returns the arguments that wid hub token prints for the cluster.
func joinLine(t *testing.T, printed string) []string {
	t.Helper()
	_, line, ok := strings.Cut(printed, "wid join ")
	if !ok {
		t.Fatalf("no command joins: %s", printed)
	}
	line = strings.NewReplacer("AGENT_IMAGE", agentImage, "CLUSTER_CONTEXT", "managed-0").Replace(line)
	return append([]string{"join"}, strings.Fields(line)...)
}

// agentIsUp plays the kubelet, on both sides.
func (b *broken) agentIsUp() {
	b.t.Helper()
	b.isUp(b.managed, agent.DefaultNamespace, ocm.AgentName)
}

func (b *broken) isUp(c client.Client, namespace, name string) {
	b.t.Helper()
	d := &appsv1.Deployment{}
	b.must(c.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, d))
	d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue,
			Reason: "MinimumReplicasAvailable"}}}
	b.must(c.Status().Update(b.t.Context(), d))
}

func (b *broken) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *broken) secret(name string) *corev1.Secret {
	b.t.Helper()
	s := &corev1.Secret{}
	b.must(b.managed.Get(b.t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: name}, s))
	return s
}

// tokensEnd deletes all bootstrap tokens of the hub, as the token cleaner does
// when they have expired.
func (b *broken) tokensEnd() {
	b.t.Helper()
	b.must(b.hub.DeleteAllOf(b.t.Context(), &corev1.Secret{}, client.InNamespace("kube-system"),
		client.MatchingFields{"type": "bootstrap.kubernetes.io/token"}))
}

// Each way in which a registration breaks has the right headline, on two real
// API servers. Where a command is printed as its cure, the fault is gone once
// it has run. No report prints a command that approves, denies or deletes by
// kubectl.
func TestRegistrationChain(t *testing.T) {
	b := &broken{hubEnvironment: newHubEnvironment(t)}
	b.must(addon.AddToScheme(b.hub.Scheme()))
	must(t, "bootstrap", "publish", "--kubeconfig="+b.hubKubeconfig)
	must(t, "hub", "init", b.onHub, "--image="+hubImage, "--apply", "--hub-apiserver="+b.hubConfig.Host)
	b.isUp(b.hub, ocm.HubNamespace, ocm.HubDeployment)
	b.runHub(hub.Options{}, registration.BootstrapGroup)

	b.wrongPin()
	b.tokenExpiredAtJoin()
	b.cured("There is no Deployment", "AgentMissing")
	b.tokensEnd() // before the agent has used its own
	stop := b.runAgent("managed-0")
	b.cured("answers 401", "BootstrapSecretUnauthorized")
	b.rivalOfTheAgent()
	b.cured("wid hub accept --clusters managed-0", "NotAccepted", "SeveralRequests", "ClientCertificateNotApproved")
	b.healthy()

	b.hubLosesItsRights()
	stop = b.certificateOfTomorrow(stop)
	stop = b.hubMoves(stop)
	stop = b.requestDenied(stop)
	stop = b.clusterDeleted(stop)
	stop = b.secretDeleted(stop)
	stop = b.webhookRefuses(stop)
	b.wantedAdministrator()
	b.addOnOfAStranger()
	stop()
}

func (b *broken) wrongPin() {
	line := joinLine(b.t, must(b.t, "hub", "token", b.onHub, "--cluster-name=managed-0"))
	for i := range line {
		if strings.HasPrefix(line[i], "sha256:") {
			line[i] = "sha256:" + strings.Repeat("0", 64)
		}
	}
	if _, err := wid(b.t, "", line...); err == nil || !strings.Contains(err.Error(), "pin") {
		b.t.Errorf("a wrong pin: %v", err)
	}
	b.shows("There is no Deployment", "AgentMissing")
}

func (b *broken) tokenExpiredAtJoin() {
	line := joinLine(b.t, must(b.t, "hub", "token", b.onHub, "--cluster-name=managed-0"))
	must(b.t, "hub", "token", b.onHub, "--cluster-name=managed-1") // the hub signs for another token
	id, _, _ := strings.Cut(line[slices.Index(line, "--hub-token")+1], ".")
	b.must(b.hub.Delete(b.t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}}))
	b.until("the hub no longer signs for it", func() bool {
		info := &corev1.ConfigMap{}
		b.must(b.hub.Get(b.t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, info))
		return info.Data["jws-kubeconfig-"+id] == "" && len(info.Data) > 1
	})
	_, err := wid(b.t, "", line...)
	if err == nil || cli.ExitCode(b.t.Context(), err) != cli.ExitDenied ||
		!strings.Contains(err.Error(), "expired, deleted, mistyped") {
		b.t.Errorf("an expired token: %v", err)
	}
	b.shows("There is no Deployment", "AgentMissing")
}

func (b *broken) hubLosesItsRights() {
	for _, name := range []string{"open-cluster-management:hub:registration",
		"open-cluster-management:managedcluster:managed-0"} {
		b.must(b.hub.Delete(b.t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	b.cured("does not allow", "HubForbidden")
	b.healthy()
}

// certificateOfTomorrow plays a hub whose clock was ahead.
func (b *broken) certificateOfTomorrow(stop func()) func() {
	stop()
	before, own := b.secret(ocm.HubKubeconfigSecret), b.secret(ocm.HubKubeconfigSecret)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(24 * time.Hour),
		NotAfter: time.Now().Add(48 * time.Hour),
		Subject:  pkix.Name{CommonName: registration.AgentUser("managed-0", string(own.Data["agent-name"]))}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	b.must(err)
	encoded, err := x509.MarshalECPrivateKey(key)
	b.must(err)
	own.Data["tls.crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	own.Data["tls.key"] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
	b.must(b.managed.Update(b.t.Context(), own))
	b.looked("is not valid before", "CertificateNotValidYet")
	own = b.secret(ocm.HubKubeconfigSecret)
	own.Data = before.Data
	b.must(b.managed.Update(b.t.Context(), own)) // tomorrow
	stop = b.runAgent("managed-0")
	b.healthy()
	return stop
}

// hubMoves leaves the old address in both Secrets.
func (b *broken) hubMoves(stop func()) func() {
	stop()
	for _, name := range []string{ocm.HubKubeconfigSecret, agent.DefaultBootstrapSecret} {
		s := b.secret(name)
		config, err := clientcmd.Load(s.Data["kubeconfig"])
		b.must(err)
		for _, c := range config.Clusters {
			c.Server = "https://127.0.0.1:1"
		}
		s.Data["kubeconfig"], err = clientcmd.Write(*config)
		b.must(err)
		if name == ocm.HubKubeconfigSecret {
			b.must(b.managed.Update(b.t.Context(), s))
			continue
		}
		s.TypeMeta, s.ManagedFields, s.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, nil, ""
		b.must(b.managed.Patch(b.t.Context(), s, client.Apply, client.FieldOwner("wid"), //nolint:staticcheck // as wid join
			client.ForceOwnership))
	}
	stop = b.runAgent("managed-0")
	b.cured("connection refused", agent.ReasonHubUnreachable)
	b.healthy()
	return stop
}

func (b *broken) requestDenied(stop func()) func() {
	stop()
	b.must(b.managed.Delete(b.t.Context(), b.secret(ocm.HubKubeconfigSecret)))
	stop = b.runAgent("managed-0")
	b.shows("", takeovers...)
	pending, err := csr.List(b.t.Context(), b.hub, "managed-0", (*csr.Request).IsPending)
	// of the rival
	pending = slices.DeleteFunc(pending, func(r *csr.Request) bool { return r.Object.Name == "managed-0-zzz" })
	if err != nil || len(pending) != 1 {
		b.t.Fatalf("%d pending, %v", len(pending), err)
	}
	b.must(pending[0].Deny(b.t.Context(), b.hub, "not today"))
	b.looked("not today", "ClientCertificateDenied")
	b.must(b.hub.Delete(b.t.Context(), pending[0].Object)) // as the agent's Event says
	stop()                                                 // it looks again in ten minutes
	stop = b.runAgent("managed-0")
	b.cured("", takeovers...)
	b.healthy()
	return stop
}

func (b *broken) clusterDeleted(stop func()) func() {
	b.must(b.hub.Delete(b.t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "managed-0"}}))
	b.cured("was deleted at the hub", "NoManagedCluster")
	b.cured("wid hub accept --clusters managed-0", "NotAccepted", "SeveralRequests")
	b.healthy()
	return stop
}

func (b *broken) secretDeleted(stop func()) func() {
	stop()
	b.must(b.managed.Delete(b.t.Context(), b.secret(ocm.HubKubeconfigSecret)))
	stop = b.runAgent("managed-0")
	b.cured("", takeovers...)
	b.healthy()
	return stop
}

// webhookRefuses lets the cluster register again under a rule of the hub's
// administrator.
func (b *broken) webhookRefuses(stop func()) func() {
	stop()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		body, _ := io.ReadAll(r.Body) //nolint:errcheck // an empty one is no review
		if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID,
			Result: &metav1.Status{Message: "names of clusters begin with prod-"}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	b.t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "names.example.org", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			Rules: []admissionregistrationv1.RuleWithOperations{
				{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{ocm.GroupVersion.Group}, APIVersions: []string{"v1"},
						Resources: []string{"managedclusters"}}}}}}}
	b.must(b.hub.Create(b.t.Context(), hook))
	b.must(b.hub.Delete(b.t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "managed-0"}}))
	b.must(b.managed.Delete(b.t.Context(), b.secret(ocm.HubKubeconfigSecret)))
	b.until("the hub has forgotten the cluster", func() bool {
		return b.hub.Get(b.t.Context(), client.ObjectKey{Name: "managed-0"}, &ocm.ManagedCluster{}) != nil
	})
	stop = b.runAgent("managed-0")
	b.looked("names of clusters begin with prod-", agent.ReasonFailed)
	b.must(b.hub.Delete(b.t.Context(), hook))
	b.cured("wid hub accept --clusters managed-0", "NotAccepted", "SeveralRequests")
	b.healthy()
	return stop
}

// request creates a request as a user.
func (b *broken) request(name, user string, groups []string, labels map[string]string, subject pkix.Name) {
	b.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	b.must(err)
	config := rest.CopyConfig(b.hubConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	b.must(b.client(config).Create(b.t.Context(),
		&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName,
				Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}))
}

// approved returns the requests that the remedies of a report approve. Events
// of the hub name such commands too, in their texts.
func approved(report *doctor.Report) (names []string) {
	for i := range report.Findings {
		f := &report.Findings[i]
		commands := slices.Clone(f.Remedy.Commands)
		for _, e := range f.Events {
			commands = append(commands, e.Remedy.Commands...)
		}
		for _, command := range commands {
			words := strings.Fields(command)
			if i := slices.Index(words, "--approve-request"); i >= 0 {
				names = append(names, words[i+1])
			}
		}
	}
	return names
}

// rivalOfTheAgent is a bootstrap user that asks for the certificate of the
// cluster that waits. Without the agent's Secret no report can tell whose
// request is whose.
func (b *broken) rivalOfTheAgent() {
	subject := pkix.Name{CommonName: registration.AgentUser("managed-0", "rival"),
		Organization: []string{registration.ClusterGroup("managed-0")}}
	b.request("managed-0-zzz", "system:bootstrap:other0", []string{registration.BootstrapGroup},
		map[string]string{ocm.ClusterNameLabel: "managed-0"}, subject)
	b.until("the remedy names the agent's request", func() bool { return len(approved(b.examine())) > 0 })
	alone := &doctor.Report{}
	// exits with its verdict
	out, _ := wid(b.t, "", "doctor", "registration", "--cluster-name=managed-0", "--hub-context=hub", "-o=json")
	b.must(json.Unmarshal([]byte(out), alone))
	if names := approved(b.examine()); slices.Contains(names, "managed-0-zzz") || len(approved(alone)) > 0 {
		b.t.Errorf("a rival: %q, and without the cluster %q", names, approved(alone))
	}
}

// attacked expects a report that stays green, shows the request to a person who
// asks for it, and has no command that approves it.
func (b *broken) attacked(attack, shows string) {
	b.t.Helper()
	b.t.Logf("%s\n%s", attack, b.healthy())
	report, out := b.examine(), b.report("--verbose")
	b.harmless(report)
	if names := approved(report); !strings.Contains(out, shows) || len(names) > 0 {
		b.t.Errorf("%s: %q\n%s", attack, names, out)
	}
}

// wantedAdministrator is an agent that asks for the rights of the hub's
// administrator.
func (b *broken) wantedAdministrator() {
	user := registration.AgentUser("managed-0", string(b.secret(ocm.HubKubeconfigSecret).Data["agent-name"]))
	b.request("managed-0-evil", user, registration.ClusterGroups("managed-0"),
		map[string]string{ocm.ClusterNameLabel: "managed-0"},
		pkix.Name{CommonName: user, Organization: []string{"kubeadm:cluster-admins"}})
	b.attacked("an agent that wants to be administrator", "kubeadm:cluster-admins")
}

// addOnOfAStranger is a request of a bootstrap user with the labels of an
// add-on that waits.
func (b *broken) addOnOfAStranger() {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": addon.GroupVersion.String(),
		"kind":     "ManagedClusterAddOn",
		"metadata": map[string]any{"namespace": "managed-0", "name": "search"}}}
	b.must(b.hub.Create(b.t.Context(), o))
	subject := registration.AddOnSubject("managed-0", "search", "agent")
	b.request("addon-managed-0-search-evil", "system:bootstrap:other0", []string{registration.BootstrapGroup},
		map[string]string{ocm.ClusterNameLabel: "managed-0", addon.NameLabel: "search"},
		pkix.Name{CommonName: subject.User, Organization: subject.Groups})
	b.attacked("a stranger's request for an add-on", "system:bootstrap:other0")
}
