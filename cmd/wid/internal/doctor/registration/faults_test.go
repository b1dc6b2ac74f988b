package registration_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/registration"
	contract "github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// commandsOf returns all commands of a report, also those of each Event.
func commandsOf(report *doctor.Report) (commands []string) {
	for i := range report.Findings {
		f := &report.Findings[i]
		commands = append(commands, f.Remedy.Commands...)
		for _, e := range f.Events {
			commands = append(commands, e.Remedy.Commands...)
		}
	}
	return commands
}

// expectHarmless expects no command that changes what a person has to decide.
// Flags and their values come anywhere.
func expectHarmless(t *testing.T, report *doctor.Report) {
	t.Helper()
	for _, command := range commandsOf(report) {
		for _, word := range strings.Fields(command) {
			if slices.Contains([]string{"approve", "deny", "delete", "bind", "rolebinding", "edit", "patch", "apply", "annotate",
				"label", "create"}, word) {
				t.Errorf("the report prints %q: %s", word, command)
			}
		}
	}
}

// approvedBy returns the requests that the commands of a report approve.
func approvedBy(report *doctor.Report) (names []string) {
	for _, command := range commandsOf(report) {
		words := strings.Fields(command)
		if i := slices.Index(words, "--approve-request"); i >= 0 {
			names = append(names, words[i+1])
		}
	}
	return names
}

// refusing is a hub that answers everything with 401.
func refusing(t *testing.T) (kubeconfigs string) {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`))
	})
}

// ofTomorrow is a kubeconfig with a certificate of a hub whose clock is ahead.
func ofTomorrow(t *testing.T) (kubeconfigs string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(24 * time.Hour),
		NotAfter: time.Now().Add(48 * time.Hour), Subject: pkix.Name{CommonName: contract.AgentUser("cluster1", "agent1")}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	data := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return kubeconfig(`"server":"https://127.0.0.1:1"`, fmt.Sprintf(
		`"client-certificate-data":%q,"client-key-data":%q`, data("CERTIFICATE", der), data("EC PRIVATE KEY", encoded)))
}

// says is an Event of the agent, which are all about its Secret.
func (w *environment) says(reason, message string) {
	w.spoke = append(w.spoke, warning(agents, "Secret", ocm.HubKubeconfigSecret, "", reason, message))
}

// Each way in which a registration breaks has its own headline and a command
// that cures it, or that looks. None decides for a person.
func TestFaults(t *testing.T) {
	const token = "wid hub token --cluster-name cluster1 --context HUB"
	for name, row := range map[string]struct {
		change               func(t *testing.T, w *environment)
		class, text, command string
	}{
		"no agent": {func(_ *testing.T, w *environment) {
			w.hub, w.spoke = nil, nil
		}, "AgentMissing", "There is no Deployment", token},
		"a bootstrap token that has expired": {func(t *testing.T, w *environment) {
			w.hub, w.spoke = nil, member(refusing(t))
			w.spoke = slices.Delete(w.spoke, 1, 2) // the agent has no credential of its own
		}, "BootstrapSecretUnauthorized", "answers 401", token},
		"the hub's program has lost its rights": {func(_ *testing.T, w *environment) {
			w.lost = true
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ocm.HubNamespace, Name: ocm.HubDeployment}}
			d.Status = w.deployment().Status
			w.hub = append(w.hub, d)
		}, "HubForbidden", "does not allow", "wid hub init --image HUB_IMAGE --apply --context HUB"},
		"a certificate of tomorrow": {func(t *testing.T, w *environment) {
			w.spoke = member(ofTomorrow(t))
		}, "CertificateNotValidYet", "is not valid before", "timedatectl status"},
		"a hub that has moved": {func(_ *testing.T, w *environment) {
			w.spoke = member(kubeconfig(`"server":"https://127.0.0.1:1"`, `"token":"x"`))
			w.says(agent.ReasonHubUnreachable, "connection refused")
		}, agent.ReasonHubUnreachable, "connection refused", token},
		"a denied request": {func(t *testing.T, w *environment) {
			w.request(t).Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "R", Message: "not today"}}
		}, "ClientCertificateDenied", "not today", "kubectl --context HUB describe csr cluster1-abc"},
		"a cluster that was deleted at the hub": {func(t *testing.T, w *environment) {
			w.hub, w.spoke = nil, member(forbidding(t))
		}, "NoManagedCluster", "was deleted at the hub", token},
		"a webhook that refuses the cluster": {func(_ *testing.T, w *environment) {
			w.hub = nil
			w.spoke = slices.Delete(w.spoke, 1, 2)
			w.says(agent.ReasonFailed, "names of clusters begin with prod-")
		}, agent.ReasonFailed, "names of clusters begin with prod-", "kubectl --context CLUSTER logs"},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy(t)
			row.change(t, w)
			report := w.run(t)
			said, text := report.Summary(), report.Text(doctor.TextOptions{Width: 400})
			if said.Class != row.class || !strings.Contains(text, row.text) {
				t.Errorf("the headline is %q, want %q and %q in:\n%s", said.Class, row.class, row.text, text)
			}
			if got := strings.Join(said.Remedy.Commands, "\n"); !strings.HasPrefix(got, row.command) {
				t.Errorf("the command is %q, want %q", got, row.command)
			}
			expectHarmless(t, report)
		})
	}
}

// An agent in another namespace is named, and examined there.
func TestAgentInAnotherNamespace(t *testing.T) {
	w := healthy(t)
	for _, o := range w.spoke {
		o.SetNamespace("second")
	}
	w.deployment().Name = ocm.AgentName
	const remedy = `pass one of ["second"] with --namespace`
	if text := w.run(t).Text(doctor.TextOptions{Width: 400}); !strings.Contains(text, remedy) {
		t.Errorf("got no %s:\n%s", remedy, text)
	}
	report := registration.Run(t.Context(), registration.Config{ClusterName: "cluster1", Namespace: "second",
		Hub: w.side(t, w.hub), Spoke: w.side(t, w.spoke)})
	if report.Result != doctor.Pass {
		t.Errorf("in its namespace:\n%s", report)
	}
}

// ask adds the request of a user, with labels and a subject of its choice.
func (w *environment) ask(t *testing.T, name, user, addOn string, subject pkix.Name, groups ...string) {
	t.Helper()
	r := w.request(t) // the last one's key is the agent's
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	r.Name, r.UID, r.Spec.Username, r.Spec.Groups = name, "of a rival", user, groups
	r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	if addOn != "" {
		r.Labels[addon.NameLabel] = addOn
	}
}

// A bootstrap user asks for the certificate of a cluster that waits. The
// command approves the request with the agent's key. Without the agent's Secret
// no report can tell whose request is whose.
func TestRivalOfTheAgent(t *testing.T) {
	w := healthy(t)
	w.decide(false, "", "")
	w.ask(t, "cluster1-zzz", "system:bootstrap:other0", "", pkix.Name{CommonName: contract.AgentUser("cluster1", "rival"),
		Organization: []string{contract.ClusterGroup("cluster1")}}, contract.BootstrapGroup)
	own := w.request(t)
	for _, r := range w.hub[len(w.hub)-2:] {
		w.hub = append(w.hub, warning(metav1.NamespaceDefault, "CertificateSigningRequest", r.GetName(), r.GetUID(),
			"NotAccepted", "ask a person"))
		w.hub[len(w.hub)-1].SetName("event-of-" + r.GetName())
	}
	report := w.run(t)
	expectHarmless(t, report)
	names := approvedBy(report)
	if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return name != own.Name }) {
		t.Errorf("the commands approve %q, want only %q:\n%s", names, own.Name, report)
	}
	alone := registration.Run(t.Context(), registration.Config{ClusterName: "cluster1", Hub: w.side(t, w.hub)})
	if names := approvedBy(alone); len(names) > 0 {
		t.Errorf("without the cluster the commands approve %q:\n%s", names, alone)
	}
}

// An agent that asks for more than its own certificate, and a user that asks in
// the name of an add-on, change no headline. --verbose shows who asks for what.
func TestRequestsOfAttackers(t *testing.T) {
	user := contract.AgentUser("cluster1", "agent1")
	subject := contract.AddOnSubject("cluster1", "search", "agent")
	for name, row := range map[string]struct {
		user, addOn string
		subject     pkix.Name
		groups      []string
		shows       string
	}{
		"the rights of the hub's administrator": {user, "", pkix.Name{CommonName: user,
			Organization: []string{"kubeadm:cluster-admins"}}, contract.ClusterGroups("cluster1"), "kubeadm:cluster-admins"},
		"the certificate of an add-on": {"system:bootstrap:other0", "search", pkix.Name{CommonName: subject.User,
			Organization: subject.Groups}, []string{contract.BootstrapGroup}, "system:bootstrap:other0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy(t)
			w.ask(t, "evil", row.user, row.addOn, row.subject, row.groups...)
			report := w.run(t)
			expectHarmless(t, report)
			text := report.Text(doctor.TextOptions{Verbose: true, Width: 400})
			if report.Result != doctor.Pass || !strings.Contains(text, row.shows) || len(approvedBy(report)) > 0 {
				t.Errorf("the result is %s, approved are %q, want a healthy report with %s:\n%s", report.Result,
					approvedBy(report), row.shows, text)
			}
		})
	}
}

// review answers a review of access.
func (w *environment) review(ctx context.Context, c client.WithWatch, o client.Object,
	opts ...client.CreateOption) error {
	review, ok := o.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return c.Create(ctx, o, opts...)
	}
	review.Status.Allowed = !w.lost
	return nil
}
