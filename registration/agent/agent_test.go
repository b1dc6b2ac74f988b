package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/internal/testing/spantest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestAgentJoins(t *testing.T) {
	w := newAgentEnvironment(t)
	registry := prometheus.NewRegistry()
	w.opts.Registerer = registry
	w.opts.Version = func(context.Context) (string, error) { return "v1.36.3", nil }
	w.restart()

	w.mustReconcile()
	if got := w.cluster().Spec; got.HubAcceptsClient {
		t.Errorf("the agent created %+v", got)
	}
	if got := w.seen(); len(got) != 1 || !strings.Contains(got[0], "NotAccepted") {
		t.Errorf("before the cluster has a credential, its condition is no Event: %q", got)
	}
	before := w.secret()
	w.accept(metav1.ConditionTrue)
	w.mustReconcile()

	secret, status := w.secret(), w.cluster().Status
	if got := string(secret.Data["cluster-name"]); got != "cluster1" {
		t.Errorf("cluster-name is %q", got)
	}
	if a, b := string(before.Data["agent-name"]), string(secret.Data["agent-name"]); a == "" || a != b {
		t.Errorf("agent-name was %q and is %q", a, b)
	}
	for _, c := range []string{ocm.ConditionJoined, ocm.ConditionAvailable, ocm.ConditionHubAccepted, "TokenReady"} {
		if !meta.IsStatusConditionTrue(status.Conditions, c) {
			t.Errorf("condition %s is not True", c)
		}
	}
	if status.Version.Kubernetes != "v1.36.3" {
		t.Errorf("version is %q", status.Version.Kubernetes)
	}
	if got := w.lease().Spec.RenewTime; !got.Time.Equal(w.now) {
		t.Errorf("the Lease was renewed at %s", got)
	}
	const want = `# HELP registration_agent_joined 1 if the last reconcile reached the hub with the agent's own credential and reported there.
# TYPE registration_agent_joined gauge
registration_agent_joined{cluster="cluster1"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "registration_agent_joined"); err != nil {
		t.Error(err)
	}
}

// Other programs mount the Secret and load the kubeconfig from there.
func TestAgentKubeconfigLoadsFromAMount(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	dir := t.TempDir()
	for name, content := range w.secret().Data {
		regtest.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	regtest.Must(t, err)
	if config.Host != "https://hub.example.com:6443" || config.BearerTokenFile != filepath.Join(dir, "shared") {
		t.Errorf("the kubeconfig says %q with token file %q", config.Host, config.BearerTokenFile)
	}
	own, err := w.agent.HubConfig(t.Context())
	if err != nil || own.BearerToken != string(w.secret().Data["shared"]) || own.BearerTokenFile != "" {
		t.Errorf("HubConfig returns %+v, %v", own, err)
	}
}

func TestAgentRecordsSpansOfItsDriver(t *testing.T) {
	w, spans := newAgentEnvironment(t), &spantest.Recorder{}
	w.opts.TracerProvider = spans
	w.restart()
	w.join()
	const want = "next workloadid.cluster=cluster1 workloadid.addon= workloadid.driver=shared"
	if got := spans.Ended(); len(got) == 0 || slices.ContainsFunc(got, func(s string) bool {
		return !strings.HasPrefix(s, want)
	}) {
		t.Errorf("got %q", got)
	}
}

// The process ends at each write in turn, before it or after it. Whatever was
// lost, the cluster joins with one request and one name.
func TestAgentRestartsAtEachWrite(t *testing.T) {
	for _, late := range []bool{false, true} {
		for n := 1; ; n++ {
			w := newAgentEnvironment(t)
			w.late = late
			crash := errors.New("the process ended")
			crashed := false
			w.fault = func(i int) error {
				if i == n {
					crashed = true
					return crash
				}
				return nil
			}
			names := map[string]bool{}
			for i := range 4 {
				if _, err := w.reconcile(); err != nil && !errors.Is(err, crash) {
					t.Fatalf("write %d, late %t: %v", n, late, err)
				}
				if s := w.secret(); s != nil {
					names[string(s.Data["agent-name"])] = true
				}
				if i == 1 {
					w.accept(metav1.ConditionTrue)
				}
				w.restart()
			}
			if !w.joined() || len(w.driver.asked) != 1 || len(names) != 1 {
				t.Errorf("write %d, late %t: joined %t, requests %v, agent names %v", n, late, w.joined(), w.driver.asked, names)
			}
			if !crashed {
				break // n is more than all writes
			}
		}
	}
}

func TestAgentFollowsTheHub(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	built := len(w.built)
	for range 5 {
		w.mustReconcile()
	}
	if len(w.built) != built {
		t.Errorf("%d clients without a change, want none", len(w.built)-built)
	}
	moved := strings.Replace(bootstrapKubeconfig("https://moved.example.com"), "server:",
		"tls-server-name: hub.example.com, server:", 1)
	w.writeBootstrap(moved)
	w.mustReconcile()
	w.mustReconcile()
	if len(w.built) != built+1 {
		t.Errorf("%d clients after the address changed, want 1", len(w.built)-built)
	}
	last := w.built[len(w.built)-1]
	if last.Host != "https://moved.example.com" || last.ServerName != "hub.example.com" ||
		last.BearerToken != string(w.secret().Data["shared"]) {
		t.Errorf("the client uses %q", last.Host)
	}
	if got := string(w.secret().Data["kubeconfig"]); !strings.Contains(got, "https://moved.example.com") ||
		!strings.Contains(got, "tls-server-name: hub.example.com") {
		t.Errorf("the kubeconfig is %s", got)
	}
	if want := []string{"local update *v1.Secret"}; !slices.Equal(w.writes, want) {
		t.Errorf("writes %q, want %q", w.writes, want)
	}
}

func TestAgentReplacesAnExpiredCredential(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	w.refused[string(w.secret().Data["shared"])] = unauthorized()
	w.seen()
	w.mustReconcile()
	if got := w.seen(); len(got) == 0 || !strings.HasPrefix(got[0], "Warning "+agent.ReasonOwnCredentialRefused) {
		t.Errorf("Events %q", got)
	}
	if got := string(w.secret().Data["shared"]); w.answer(got) != nil || len(w.driver.asked) != 2 || !w.joined() {
		t.Errorf("the agent still uses %q, requests %v", got, w.driver.asked)
	}
}

// A joined cluster needs no bootstrap credential until its own is refused.
func TestAgentWithoutBootstrapCredential(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	w.writeBootstrap(
		"{apiVersion: v1, kind: Config, clusters: [{name: h, cluster: {server: https://hub.example.com:6443}}]}")
	w.restart()
	w.mustReconcile()
	w.refused[string(w.secret().Data["shared"])] = unauthorized()
	if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), "holds no user") ||
		!strings.Contains(err.Error(), "join again") {
		t.Errorf("got %v", err)
	}
}

// A failure that lasts is recorded again before API servers forget it, and not
// at each reconcile.
func TestAgentRepeatsAFailureThatLasts(t *testing.T) {
	w := newAgentEnvironment(t)
	w.refused[bootstrapToken] = unauthorized()
	count := 0
	for range 90 {
		if _, err := w.reconcile(); err == nil {
			t.Fatal("the hub takes the credential")
		}
		w.now = w.now.Add(time.Minute)
		for _, e := range w.seen() {
			if count++; !strings.HasPrefix(e, "Warning "+agent.ReasonCredentialRefused) {
				t.Errorf("Event %q", e)
			}
		}
	}
	if count != 3 {
		t.Errorf("%d Events in 90 minutes, want 3", count)
	}
}

// After a failure that is over, the Event about what the agent waits for is the
// newest again.
func TestAgentSaysAfterAFailureWhatItWaitsFor(t *testing.T) {
	w := newAgentEnvironment(t)
	w.mustReconcile()
	w.refused[bootstrapToken] = unauthorized()
	if _, err := w.reconcile(); err == nil {
		t.Fatal("the hub takes the credential")
	}
	clear(w.refused)
	w.seen()
	w.mustReconcile()
	w.mustReconcile()
	w.mustReconcile()
	if got := w.seen(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning NotAccepted") {
		t.Errorf("Events %q", got)
	}
}

// The renewal says that the failure is over, before the Lease is due.
func TestAgentRenewsItsLeaseAfterAFailure(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	w.mustReconcile()
	before := w.lease().Spec.RenewTime.Time
	w.now = w.now.Add(time.Second)
	w.mustReconcile()
	if got := w.lease().Spec.RenewTime.Time; !got.Equal(before) {
		t.Fatalf("renewed at %s, before it was due", got)
	}
	for _, token := range []string{bootstrapToken, string(w.secret().Data["shared"])} {
		w.refused[token] = apierrors.NewServiceUnavailable("down")
	}
	if _, err := w.reconcile(); err == nil {
		t.Fatal("the hub answers")
	}
	clear(w.refused)
	w.mustReconcile()
	if got := w.lease().Spec.RenewTime.Time; !got.Equal(w.now) {
		t.Errorf("renewed at %s, want %s", got, w.now)
	}
}

func TestAgentKeepsACredentialThatIsForbidden(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	before := w.secret()
	w.refused[string(before.Data["shared"])] = forbidden()
	w.writes = nil
	w.seen()
	var waits []time.Duration
	for range 7 {
		waits = append(waits, w.mustReconcile()/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 30, 30}; !slices.Equal(waits, want) {
		t.Errorf("the agent waits %v, want %v", waits, want)
	}
	if got := w.seen(); len(got) != 1 || !strings.Contains(got[0], "wid hub accept --clusters cluster1") {
		t.Errorf("Events %q", got)
	}
	if len(w.writes) > 0 || !maps.EqualFunc(before.Data, w.secret().Data, func(a, b []byte) bool {
		return string(a) == string(b)
	}) {
		t.Errorf("the agent wrote %q", w.writes)
	}
	clear(w.refused)
	if after := w.mustReconcile(); after != time.Minute || len(w.driver.asked) != 1 {
		t.Errorf("after it is let in again it comes back after %s, requests %v", after, w.driver.asked)
	}
	w.refused[string(before.Data["shared"])] = forbidden()
	if after := w.mustReconcile(); after != time.Second || len(w.seen()) != 1 {
		t.Errorf("when it is kept out again it comes back after %s, without an Event", after)
	}
}

func TestAgentWaitsForTheClustersNamespace(t *testing.T) {
	w := newAgentEnvironment(t)
	w.mustReconcile()
	w.accept(metav1.ConditionTrue)
	w.fault = func(int) error {
		if strings.HasPrefix(w.writes[len(w.writes)-1], "hub patch") {
			return forbidden()
		}
		return nil
	}
	if after := w.mustReconcile(); after != time.Second || w.joined() {
		t.Errorf("joined %t, back after %s", w.joined(), after)
	}
	w.fault = nil
	w.mustReconcile()
	if !w.joined() || len(w.driver.asked) != 1 {
		t.Error("the cluster has not joined")
	}
}

func TestAgentRequeuesExactly(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	for _, step := range []struct {
		name       string
		advance    time.Duration
		at         time.Duration // of the driver, from now
		want       time.Duration
		wantWrites int
	}{
		{name: "lease just renewed", want: time.Minute},
		{name: "lease half way", advance: 17 * time.Second, want: 43 * time.Second},
		{name: "driver first", at: 5 * time.Second, want: 5 * time.Second},
		{name: "driver later", at: time.Hour, want: 43 * time.Second},
		{name: "driver late", at: -time.Hour, want: time.Second},
		{name: "one microsecond early", advance: 43*time.Second - time.Microsecond, want: time.Second},
		{name: "lease due", advance: time.Microsecond, want: time.Minute, wantWrites: 1},
		{name: "clock set back", advance: -time.Hour, want: time.Minute, wantWrites: 1},
	} {
		w.writes, w.driver.at = nil, time.Time{}
		w.now = w.now.Add(step.advance)
		if step.at != 0 {
			w.driver.at = w.now.Add(step.at)
		}
		if got := w.mustReconcile(); got != step.want || len(w.writes) != step.wantWrites {
			t.Errorf("%s: back after %s, want %s; writes %q", step.name, got, step.want, w.writes)
		}
	}
	cluster := w.cluster()
	cluster.Spec.LeaseDurationSeconds = 10
	regtest.Must(t, w.hub.Update(t.Context(), cluster))
	if got := w.mustReconcile(); got != 10*time.Second || *w.lease().Spec.LeaseDurationSeconds != 10 {
		t.Errorf("after the duration changed it comes back after %s", got)
	}
}

// The hub creates the Lease, and may do so later than it gives the rights to
// it.
func TestAgentWaitsForTheLeaseOfTheHub(t *testing.T) {
	w := newAgentEnvironment(t)
	regtest.Must(t, w.hub.Delete(t.Context(), hubLease()))
	w.mustReconcile()
	w.accept(metav1.ConditionTrue)
	if wait := w.mustReconcile(); w.joined() || wait > 2*time.Second {
		t.Errorf("without a Lease: joined %t, back after %s", w.joined(), wait)
	}
	if slices.Contains(w.writes, "hub create *v1.Lease") {
		t.Error("the agent creates a Lease")
	}
	regtest.Must(t, w.hub.Create(t.Context(), hubLease()))
	if w.mustReconcile(); !w.joined() || !w.lease().Spec.RenewTime.Time.Equal(w.now) {
		t.Errorf("joined %t, Lease of %s", w.joined(), w.lease().Spec.RenewTime)
	}
}

func TestAgentSteadyStateWritesNothing(t *testing.T) {
	w := newAgentEnvironment(t)
	w.opts.Version = func(context.Context) (string, error) { return "v1.36.3", nil }
	w.driver.annotations = map[string]string{"mark": "1"}
	w.restart()
	w.join()
	w.writes = nil
	for range 20 {
		w.restart()
		w.mustReconcile()
	}
	if len(w.writes) > 0 {
		t.Errorf("20 reconciles wrote %q", w.writes)
	}
}

func TestAgentSwitchesDrivers(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	other := &sharedToken{name: "other-token", asked: map[string]bool{}, issue: func(nonce string) string {
		return "token-other-" + nonce
	}}
	w.accept(metav1.ConditionFalse)
	w.opts.Driver = other
	w.restart()
	w.mustReconcile()
	if got := w.secret().Data; string(got["auth-type"]) != "shared-token" || len(got["state.other-token.nonce"]) == 0 ||
		len(other.asked) != 1 {
		t.Errorf("until the new driver has a credential the Secret holds %q", got)
	}
	if w.built[len(w.built)-1].BearerToken == bootstrapToken {
		t.Error("the old credential is not used while it works")
	}
	w.refused[string(w.secret().Data["shared"])] = forbidden()
	w.accept(metav1.ConditionTrue)
	w.mustReconcile()
	got := w.secret().Data
	if string(got["auth-type"]) != "other-token" || !strings.HasPrefix(string(got["shared"]), "token-other-") ||
		!w.joined() {
		t.Errorf("after the switch the Secret holds %q", got)
	}
	if want := []string{"agent-name", "auth-type", "cluster-name", "kubeconfig",
		"shared"}; !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("keys %q, want %q", slices.Sorted(maps.Keys(got)), want)
	}
}

// A cluster whose driver fails is still alive.
func TestAgentRenewsTheLeaseWhileTheDriverFails(t *testing.T) {
	w := newAgentEnvironment(t)
	w.join()
	w.now = w.now.Add(time.Minute)
	w.driver.err = errors.New("the signer is away, Bearer 0123456789abcdef01234567")
	if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), `driver "shared-token"`) {
		t.Errorf("got %v", err)
	}
	if got := w.lease().Spec.RenewTime; !got.Time.Equal(w.now) {
		t.Errorf("the Lease was renewed at %s", got)
	}
	if got := w.seen(); len(got) == 0 || !strings.Contains(got[len(got)-1], "the signer is away") ||
		strings.Contains(got[len(got)-1], "0123456789") {
		t.Errorf("Events %q", got)
	}
}

func TestAgentReportsAnUnavailableCluster(t *testing.T) {
	w := newAgentEnvironment(t)
	w.opts.Version = func(context.Context) (string, error) { return "", errors.New("connection refused") }
	w.restart()
	w.join()
	c := meta.FindStatusCondition(w.cluster().Status.Conditions, ocm.ConditionAvailable)
	if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "connection refused") {
		t.Errorf("Available is %+v", c)
	}
}

func TestAgentAnnotatesAManagedClusterCreatedBeforehand(t *testing.T) {
	w := newAgentEnvironment(t)
	w.driver.annotations = map[string]string{"mark": "arn"}
	beforehand := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1",
		Annotations: map[string]string{"other": "kept"}}}
	regtest.Must(t, w.hub.Create(t.Context(), beforehand))
	w.fault = func(int) error {
		if w.writes[len(w.writes)-1] == "hub patch *ocm.ManagedCluster" {
			return forbidden()
		}
		return nil
	}
	w.mustReconcile()
	if got := w.seen(); len(got) != 2 || !strings.Contains(got[0], "AnnotationsMissing") ||
		!strings.Contains(got[0], `"arn"`) {
		t.Errorf("where the agent may not patch, Events are %q", got)
	}
	if got := w.driver.in.Annotations; got["mark"] != "" || got["other"] != "kept" {
		t.Errorf("the driver sees annotations that the hub lacks: %q", got)
	}
	w.fault = nil
	w.mustReconcile()
	if got := w.cluster().Annotations; got["mark"] != "arn" || got["other"] != "kept" {
		t.Errorf("annotations %q", got)
	}
}

// fixedDriver returns one Step.
type fixedDriver struct {
	name string
	step registration.Step
}

func (d fixedDriver) Name() string { return d.name }
func (d fixedDriver) Next(context.Context, registration.Input) (registration.Step, error) {
	return d.step, nil
}

// configuringDriver makes clients itself.
type configuringDriver struct{ fixedDriver }

func (d configuringDriver) RESTConfig(_ context.Context, stored map[string][]byte) (*rest.Config, error) {
	return &rest.Config{Host: "https://elsewhere.example.com", BearerToken: "token-" + string(stored["cluster-name"])}, nil
}

var execUser = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1",
	Command:         "aws",
	InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}

// restlessDriver never stores the same twice.
type restlessDriver struct{ calls int }

func (d *restlessDriver) Name() string { return "restless" }
func (d *restlessDriver) Next(context.Context, registration.Input) (registration.Step, error) {
	d.calls++
	return registration.Step{State: map[string][]byte{"n": fmt.Append(nil, d.calls)}}, nil
}

func TestAgentStopsADriverThatNeverSettles(t *testing.T) {
	w := newAgentEnvironment(t)
	driver := &restlessDriver{}
	w.opts.Driver = driver
	w.restart()
	if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), `driver "restless"`) || driver.calls > 8 {
		t.Errorf("%d calls, want at most 8 and an error of the driver: %v", driver.calls, err)
	}
}

// A driver that hangs ends with its context.
type hangingDriver struct{ fixedDriver }

func (d hangingDriver) Next(ctx context.Context, _ registration.Input) (registration.Step, error) {
	<-ctx.Done()
	return registration.Step{}, ctx.Err()
}

func TestAgentRenewsTheLeaseWhileTheDriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAgentEnvironment(t)
		w.join()
		w.now = w.now.Add(time.Minute)
		w.opts.Driver = hangingDriver{fixedDriver{name: "shared-token"}}
		w.restart()
		if _, err := w.reconcile(); !errors.Is(err, context.DeadlineExceeded) || !w.lease().Spec.RenewTime.Time.Equal(w.now) {
			t.Errorf("got %v, Lease of %s", err, w.lease().Spec.RenewTime)
		}
	})
}

// The kubeconfig runs a program, the agent does not; and the driver does not
// decide on the address.
func TestAgentUsesTheDriversOwnConfiguration(t *testing.T) {
	w := newAgentEnvironment(t)
	w.opts.Driver = configuringDriver{fixedDriver{"aws-like",
		registration.Step{Credential: &registration.Credential{User: execUser}}}}
	w.restart()
	w.mustReconcile()
	config, err := w.agent.HubConfig(t.Context())
	if err != nil || config.Host != "https://hub.example.com:6443" || config.BearerToken != "token-cluster1" ||
		config.ExecProvider != nil {
		t.Errorf("HubConfig returns %+v, %v", config, err)
	}
	if !w.joined() || !strings.Contains(string(w.secret().Data["kubeconfig"]), "command: aws") {
		t.Errorf("joined %t, kubeconfig %s", w.joined(), w.secret().Data["kubeconfig"])
	}
}
