package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/hubcmd"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// acceptEnvironment is the hub that the tests share. Each case has a cluster of
// its own.
type acceptEnvironment struct{ *regtest.Environment }

// ofTests labels what a test creates, and deletes at its end.
var ofTests = client.MatchingLabels{"test": "accept"}

func newAcceptEnvironment(t *testing.T) *acceptEnvironment {
	t.Helper()
	hub := kubetest.Start(t)
	w := &acceptEnvironment{regtest.NewWith(t, hub, hub)} // no cluster is managed
	t.Setenv("KUBECONFIG", w.Hub.Kubeconfig(t))
	t.Cleanup(func() {
		for _, o := range []client.Object{&ocm.ManagedCluster{}, &rbacv1.ClusterRole{},
			&certificatesv1.CertificateSigningRequest{}} {
			if err := w.Admin.DeleteAllOf(context.WithoutCancel(t.Context()), o, ofTests); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// cluster returns the name of a new cluster that waits for acceptance. It
// claims an ARN unless that is "". A hub with both auth types has read the
// claim.
func (w *acceptEnvironment) cluster(t *testing.T, arn string, change ...func(*ocm.ManagedCluster)) string {
	t.Helper()
	claim := registration.Claim{AuthType: registration.AuthTypeCSR}
	if arn != "" {
		claim = registration.Claim{AuthType: registration.AuthTypeAWS, Value: arn}
		change = append(change, annotatedWith(map[string]string{awsirsa.ARNAnnotation: arn}))
	}
	cluster := w.newCluster(t, change...)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName(cluster.Name)}}
	role.Labels = maps.Clone(ofTests)
	role.Labels[ocm.ClusterNameLabel] = cluster.Name
	registration.PublishClaim(role, cluster, claim)
	regtest.Must(t, w.Admin.Create(t.Context(), role))
	return cluster.Name
}

// newCluster creates a cluster that no hub has seen.
func (w *acceptEnvironment) newCluster(t *testing.T, change ...func(*ocm.ManagedCluster)) *ocm.ManagedCluster {
	t.Helper()
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "accept-", Labels: maps.Clone(ofTests)}}
	for _, f := range change {
		f(cluster)
	}
	regtest.Must(t, w.Admin.Create(t.Context(), cluster))
	return cluster
}

// runHub runs the hub program's parts that register by certificates, with its
// Events.
func (w *acceptEnvironment) runHub() {
	w.Hub.ControllerManager(w.T, "csrsigning")
	w.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		driver,
			err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
			Events:         mgr.GetEventRecorder("wid-hub"),
			BootstrapUsers: []string{regtest.BootstrapUser}, BootstrapGroups: []string{registration.BootstrapGroup}})
		return hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR}, err
	})
}

// login has wid use the credentials of a user.
func login(t *testing.T, config *rest.Config) {
	t.Helper()
	t.Setenv("KUBECONFIG",
		writeFile(t, "kubeconfig", kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, "")))
}

// statusOf returns the clusters that status lists.
func statusOf(t *testing.T, args ...string) []hubcmd.Cluster {
	t.Helper()
	var list struct{ Items []hubcmd.Cluster }
	regtest.Must(t, json.Unmarshal([]byte(must(t, append([]string{"hub", "status", "-o", "json"}, args...)...)), &list))
	return list.Items
}

// pendingOf returns the pending requests of a cluster as status lists them.
func pendingOf(t *testing.T, cluster string) []hubcmd.AgentRequest {
	t.Helper()
	all := statusOf(t, "--clusters="+cluster)
	if len(all) != 1 {
		t.Fatalf("status lists %d clusters", len(all))
	}
	return all[0].PendingRequests
}

func (w *acceptEnvironment) isApproved(t *testing.T, request string) bool {
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{}
	regtest.Must(t, w.Admin.Get(t.Context(), client.ObjectKey{Name: request}, csr))
	return len(csr.Status.Conditions) > 0
}

// The command that a refusal prints approves the request that the reader picks
// from its lines.
func TestHubAcceptRunsTheCommandThatItPrints(t *testing.T) {
	w := newAcceptEnvironment(t)
	user := w.As("system:bootstrap:abcdef", registration.BootstrapGroup)
	cluster := w.cluster(t, "")
	old, current := regtest.Ask(t, w.Admin, user, cluster, "stable"), regtest.Ask(t, w.Admin, user, cluster, "stable")
	_, err := wid(t, "", "hub", "accept", "--clusters="+cluster)
	if err == nil || w.isApproved(t, current) || w.isApproved(t, old) || w.Cluster(cluster).Spec.HubAcceptsClient {
		t.Fatalf("accept picks one of two requests: %v", err)
	}
	for _, r := range regtest.RequestsOf(t, w.Admin, cluster) {
		request, parseErr := csr.Parse(&r)
		if parseErr != nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("request %q: agent \"stable\" with key %.8s", r.Name, request.Key)) {
			t.Errorf("%v, %v", err, parseErr)
		}
	}
	_, command, _ := strings.Cut(err.Error(), "run wid ")
	command, _, _ = strings.Cut(command, "REQUEST")
	must(t, append(strings.Fields(command), current)...)
	if !w.isApproved(t, current) || w.isApproved(t, old) || !w.Cluster(cluster).Spec.HubAcceptsClient {
		t.Errorf("%q approves the wrong request", command)
	}
}

func TestHubAcceptComparesTheClaim(t *testing.T) {
	w := newAcceptEnvironment(t)
	for name, c := range map[string]struct{ claims, flag, want string }{
		"the same":                  {eksManaged, eksManaged, ""},
		"another ARN":               {eksAttacker, eksManaged, `claims "` + eksAttacker + `" instead of "` + eksManaged},
		"none, as certificates":     {"", cli.None, ""},
		"none instead of an ARN":    {"", eksManaged, `claims nothing instead of "arn:`},
		"an ARN instead of none":    {eksAttacker, cli.None, `claims "` + eksAttacker},
		"an ARN that begins alike":  {eksManaged + "2", eksManaged, `claims "` + eksManaged + `2" instead of`},
		"an ARN in other case only": {eksManaged, strings.ToUpper(eksManaged), "instead of"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := w.cluster(t, c.claims)
			if args := []string{"hub", "accept", "--clusters=" + cluster, "--claim=" + c.flag}; c.want == "" {
				must(t, args...)
			} else {
				fails(t, cli.ExitDenied, c.want, args...)
			}
			if got := w.Cluster(cluster).Spec.HubAcceptsClient; got != (c.want == "") {
				t.Errorf("accepted %t", got)
			}
		})
	}
}

// Whichever right is missing, the message names them.
func TestHubAcceptNamesTheRights(t *testing.T) {
	w := newAcceptEnvironment(t)
	rule := func(verb, group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	patch, accept := rule("patch", ocm.GroupVersion.Group, "managedclusters"),
		rule("update", ocm.GroupVersion.Group, "managedclusters/accept")
	for name, row := range map[string]struct {
		deny  bool
		has   []rbacv1.PolicyRule
		works bool
	}{
		"no right to accept":               {false, []rbacv1.PolicyRule{patch}, false},
		"no right to write":                {false, []rbacv1.PolicyRule{accept}, false},
		"all":                              {false, []rbacv1.PolicyRule{patch, accept}, true},
		"no right to accept, for a denial": {true, []rbacv1.PolicyRule{patch}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := w.cluster(t, "", func(c *ocm.ManagedCluster) { c.Spec.HubAcceptsClient = row.deny })
			login(t,
				w.Hub.User(t, cluster, "", append([]rbacv1.PolicyRule{rule("get", ocm.GroupVersion.Group, "managedclusters"),
					rule("patch", ocm.GroupVersion.Group, "managedclusters/status"), rule("get", rbacv1.GroupName, "clusterroles"),
					rule("list", "certificates.k8s.io", "certificatesigningrequests")}, row.has...)...))
			args := []string{"hub", "accept", "--clusters=" + cluster, "--claim=none"}
			if row.deny {
				args = []string{"hub", "deny", "--clusters=" + cluster}
			}
			_, err := wid(t, "", args...)
			if (err == nil) != row.works || err != nil && (cli.ExitCode(t.Context(), err) != cli.ExitDenied ||
				!strings.Contains(err.Error(), "needs the rights to patch managedclusters") ||
				!strings.Contains(err.Error(), "managedclusters/accept in register.open-cluster-management.io")) {
				t.Fatalf("it says %v", err)
			}
			if accepted := w.Cluster(cluster).Spec.HubAcceptsClient; accepted != (row.deny != row.works) {
				t.Errorf("accepted %t", accepted)
			}
		})
	}
}

func TestHubDenySaysWhetherTheHubHasActed(t *testing.T) {
	w := newAcceptEnvironment(t)
	name := w.cluster(t, "")
	w.SetAccepted(name, true)
	cluster := w.Cluster(name)
	cluster.Status.Conditions = []metav1.Condition{{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue,
		Reason: ocm.ReasonHubAccepted, LastTransitionTime: metav1.Now()}}
	regtest.Must(t, w.Admin.Status().Update(t.Context(), cluster))
	const open = "denied; the hub has not acted yet, the cluster still has access"
	if out := must(t, "hub", "deny", "--clusters="+name); !strings.Contains(out, open) {
		t.Errorf("without a hub program deny says %s", out)
	}
	fails(t, cli.ExitUnavailable, "gave up waiting for the hub program to take away the access", "hub", "deny",
		"--clusters="+name, "--wait", "--timeout=1s")
	w.runHub()
	decided := func(reason string) { // by a hub that may be faster than wid
		regtest.Eventually(t, "the hub says "+reason, func() bool {
			return w.Reason(name, ocm.ConditionHubAccepted) == reason
		})
	}
	decided("False/HubClusterAdminDenied")
	w.SetAccepted(name, true)
	decided("True/HubClusterAdminAccepted")
	if out := must(t, "hub", "deny", "--clusters="+name, "--wait"); !strings.Contains(out, "has taken away its access") ||
		!strings.Contains(out, "until it expires") ||
		w.Reason(name, ocm.ConditionHubAccepted) != "False/HubClusterAdminDenied" {
		t.Errorf("deny --wait says %s", out)
	}
}

// Events are data of other programs. The newest one about a request counts,
// whatever it says, and without the right to list them the rest is shown.
func TestHubStatusShowsTheNewestRefusal(t *testing.T) {
	w := newAcceptEnvironment(t)
	const user = "system:bootstrap:abcdef"
	cluster := w.cluster(t, "")
	name := regtest.Ask(t, w.Admin, w.As(user, registration.BootstrapGroup), cluster, "agent1")
	uid, now := regtest.RequestsOf(t, w.Admin, cluster)[0].UID, time.Now()
	event := func(reason, note string, at time.Duration, change func(*eventsv1.Event)) {
		e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "refusal-", Namespace: "default"},
			EventTime:           metav1.NewMicroTime(now.Add(at)),
			ReportingController: "wid-hub", ReportingInstance: "wid-hub-0", Action: ocm.ActionApprove, Reason: reason,
			Note: note, Type: "Warning",
			Regarding: corev1.ObjectReference{Kind: "CertificateSigningRequest", APIVersion: "certificates.k8s.io/v1",
				Name: name, UID: uid}}
		change(e)
		regtest.Must(t, w.Admin.Create(t.Context(), e))
	}
	event("NotAccepted", "first", -time.Hour, func(*eventsv1.Event) {})
	event("SeveralRequests", "two\nlines\x1b[31m", -3*time.Minute, func(e *eventsv1.Event) {
		e.Series = &eventsv1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(now.Add(-time.Minute))}
	})
	event("AnotherAgent", "before the last of the series", -2*time.Minute, func(*eventsv1.Event) {})
	event("Approved", "of no refusal", 0, func(e *eventsv1.Event) { e.Type = "Normal" })
	event("Other", "of another program", 0, func(e *eventsv1.Event) { e.Action = "Watch" })
	event("Other", "of another object", 0, func(e *eventsv1.Event) { e.Regarding.Kind = "Node" })
	event("Other", "of a deleted request of the name", 0, func(e *eventsv1.Event) { e.Regarding.UID = "deleted" })
	if got, want := pendingOf(t, cluster),
		[]hubcmd.AgentRequest{{Name: name, User: user, Reason: "SeveralRequests", Message: "two lines [31m"}}; !slices.Equal(
		got, want) {
		t.Errorf("status shows %+v", got)
	}
	if out := must(t, "hub", "status", "--clusters="+cluster); !strings.Contains(out, " 1 (SeveralRequests) ") {
		t.Errorf("status shows %s", out)
	}
	rule := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"list"}}
	}
	login(t, w.Hub.User(t, "looker", "", rule(ocm.GroupVersion.Group, "managedclusters"),
		rule(rbacv1.GroupName, "clusterroles"), rule("certificates.k8s.io", "certificatesigningrequests")))
	if got, want := pendingOf(t, cluster), []hubcmd.AgentRequest{{Name: name, User: user}}; !slices.Equal(got, want) {
		t.Errorf("without the right to list Events, status shows %+v", got)
	}
}

// requestOfSize returns the request of a cluster's agent. Text before the PEM
// block counts for nothing.
func requestOfSize(t *testing.T, key *ecdsa.PrivateKey, cluster, name string,
	size int) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	subject := pkix.Name{CommonName: registration.AgentUser(cluster, "agent1"),
		Organization: []string{registration.ClusterGroup(cluster), ocm.ManagedClustersGroup}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	regtest.Must(t, err)
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ocm.ClusterNameLabel: cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Request: append(bytes.Repeat([]byte("\n"), max(0, size-len(block))), block...),
			Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}},
	}
}

// Objects of other users are many and large, and the command reads a bounded
// part of an answer.
func TestHubCommandsOnAHubThatBootstrapUsersFilled(t *testing.T) {
	w := newAcceptEnvironment(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	regtest.Must(t, err)
	const objects, size = 90, 15 << 10
	for i := range objects {
		name := fmt.Sprintf("filled-%d", i)
		meta := metav1.ObjectMeta{Name: name, Labels: ofTests, Annotations: map[string]string{"x": strings.Repeat("x", size)}}
		denied, role := &ocm.ManagedCluster{ObjectMeta: meta}, &rbacv1.ClusterRole{ObjectMeta: meta}
		role.Name, role.Labels = registration.ClusterRoleName(name),
			map[string]string{"test": ofTests["test"], ocm.ClusterNameLabel: name}
		request := requestOfSize(t, key, "filled-0", name, size*2/3) // base64 counts
		request.Labels["test"] = ofTests["test"]
		regtest.Must(t, errors.Join(w.Admin.Create(t.Context(), denied), w.Admin.Create(t.Context(), request)))
		registration.PublishClaim(role, denied, registration.Claim{AuthType: registration.AuthTypeCSR})
		regtest.Must(t, w.Admin.Create(t.Context(), role))
		denied.Status.Conditions = []metav1.Condition{{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse,
			Reason: ocm.ReasonHubDenied, LastTransitionTime: metav1.Now()}}
		regtest.Must(t, w.Admin.Status().Update(t.Context(), denied))
	}
	clusters, requests := 0, 0
	for _, c := range statusOf(t) {
		if strings.HasPrefix(c.Name, "filled-") {
			clusters++
			requests += len(c.PendingRequests)
		}
	}
	if clusters != objects || requests != objects {
		t.Errorf("status shows %d clusters and %d requests instead of %d", clusters, requests, objects)
	}
	if out := must(t, "hub", "cleanup", "--older-than=0", "--dry-run"); strings.Count(out, `cluster "filled-`) != objects {
		t.Errorf("cleanup says %s", out)
	}
	large := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "large", Labels: ofTests},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true,
			ManagedClusterClientConfigs: slices.Repeat(
				[]ocm.ClientConfig{{URL: "https://x", CABundle: bytes.Repeat([]byte("x"), 48<<10)}}, 16)}}
	regtest.Must(t, w.Admin.Create(t.Context(), large))
	if out := must(t, "hub", "deny", "--clusters=large"); !strings.Contains(out, `"large" denied`) {
		t.Errorf("deny says %s", out)
	}
	fails(t, cli.ExitDenied, "90 requests", "hub", "accept", "--clusters=filled-0")
}
