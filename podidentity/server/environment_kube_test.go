package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

const (
	patience   = time.Minute
	audience   = "pod-identity.example.com"
	account    = "123456789012"
	roles      = "arn:aws:iam::" + account + ":role/"
	serverRole = roles + "pod-identity"
	region     = "eu-central-1"
)

// environment is a real API server, a fake AWS that trusts its tokens, and a
// server that runs in a manager.
type environment struct {
	*podscenario.Environment

	cloud   *cloudtest.Cloud
	manager ctrl.Manager
	server  *server.Server
	options server.Options
	events  *recorder
	audit   *lines
	// elects turns leader election on, records sends Events to the API server.
	elects, records bool
	series          *series
	// connections is Options.MaxConnections.
	connections int
}

// newEnvironment calls prepare before the server starts.
func newEnvironment(t testing.TB, prepare ...func(*environment)) *environment {
	t.Helper()
	w := &environment{Environment: podscenario.New(t, kubetest.Start(t)), cloud: testenv.Cloud(t), events: &recorder{},
		audit: &lines{}}
	w.Allow(v1alpha1.AllowRule{Namespaces: []string{"*"}, Roles: []string{roles + "*"}})
	w.setIdentity()
	for _, p := range prepare {
		p(w)
	}
	w.manager, w.server = w.replica()
	w.start(w.manager)
	return w
}

// replica returns one more server with a cache of its own, whose manager does
// not run yet.
func (w *environment) replica() (ctrl.Manager, *server.Server) {
	w.T.Helper()
	config := rest.CopyConfig(w.Cluster.User(w.T, "podidentity-server", "", rules()...))
	config.QPS = -1
	mgr, err := ctrl.NewManager(config,
		ctrl.Options{Scheme: scheme(w.T), LeaderElection: w.elects, LeaderElectionID: "podidentity",
			LeaderElectionNamespace: w.Namespace, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
			Logger: logr.Discard(), Cache: crcache.Options{DefaultNamespaces: map[string]crcache.Config{w.Namespace: {}}}})
	if err != nil {
		w.T.Fatal(err)
	}
	w.options = server.Options{Client: mgr.GetClient(), Audience: audience, Cluster: "prod", Cache: testenv.Cache(w.T),
		AuthOptions: []auth.Option{auth.WithSTSRegion(region), auth.WithHTTPClient(w.cloud.Client())},
		Events:      w.events, Logger: w.audit.logger(), Registerer: prometheus.NewRegistry(),
		MaxConnections: w.connections}
	if w.series != nil {
		w.options.Series = w.series
	}
	if w.records {
		w.options.Events = mgr.GetEventRecorder("podidentity-server")
	}
	s, err := server.New(w.options)
	if err != nil {
		w.T.Fatal(err)
	}
	if err := s.SetupWithManager(mgr); err != nil {
		w.T.Fatal(err)
	}
	return mgr, s
}

// rules are those that the package comment lists, and those of leader election.
func rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"iam.aws.k8s.io"}, Resources: []string{"iambindings", "iamroleallowlists"},
			Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"iam.aws.k8s.io"}, Resources: []string{"iambindings/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "create", "update"}},
	}
}

func (w *environment) start(mgr ctrl.Manager) (stop func()) {
	w.T.Helper()
	stop = kubetest.RunManager(w.T, mgr)
	if !mgr.GetCache().WaitForCacheSync(w.T.Context()) {
		w.T.Fatal("the informers have not synced")
	}
	return stop
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s, err := podscenario.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// setIdentity makes this process a pod with IAM roles for service accounts.
func (w *environment) setIdentity() {
	w.T.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_ENDPOINT_URL", "AWS_REGION"} {
		w.T.Setenv(name, "")
	}
	nothing := filepath.Join(w.T.TempDir(), "nothing")
	w.T.Setenv("AWS_CONFIG_FILE", nothing)
	w.T.Setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)
	w.T.Setenv("AWS_EC2_METADATA_DISABLED", "true")

	w.Account("server")
	file := filepath.Join(w.T.TempDir(), "token")
	if err := os.WriteFile(file, []byte(w.Token("server", nil, aws.DefaultAudience)), 0o600); err != nil {
		w.T.Fatal(err)
	}
	w.T.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
	w.T.Setenv("AWS_ROLE_ARN", serverRole)
	w.cloud.AWS().AddOIDCProvider(account, w.Cluster.IssuerURL(), w.Cluster.IssuerClient(w.T), aws.DefaultAudience)
	w.trustServer()
}

func (w *environment) trustServer() {
	w.cloud.AWS().SetRole(serverRole,
		cloudtest.Trust{Issuer: w.Cluster.IssuerURL(),
			Subjects: []string{"system:serviceaccount:" + w.Namespace + ":server"}})
}

// role makes a role that trusts the server.
func (w *environment) role(name string, change ...func(*cloudtest.Trust)) (arn string) {
	trust := cloudtest.Trust{Principals: []string{serverRole}, TagSession: true}
	for _, c := range change {
		c(&trust)
	}
	w.cloud.AWS().SetRole(roles+name, trust)
	return roles + name
}

// bind creates the ServiceAccount and a binding, and waits until the server's
// informer has it.
func (w *environment) bind(serviceAccount, role string, change ...func(*v1alpha1.IAMBinding)) *v1alpha1.IAMBinding {
	w.T.Helper()
	w.Account(serviceAccount)
	b := podscenario.Binding(w.Namespace, serviceAccount, role)
	for _, c := range change {
		c(b)
	}
	w.Must(w.Create(w.T.Context(), b))
	w.Eventually("the informer has the binding", func() bool {
		return w.manager.GetClient().Get(w.T.Context(), client.ObjectKeyFromObject(b), &v1alpha1.IAMBinding{}) == nil
	})
	return b
}

// worker creates a pod, which runs nowhere. Its name begins with "worker-", by
// which calls for pods are told from those of probes.
func (w *environment) worker(serviceAccount string) *corev1.Pod {
	w.T.Helper()
	p := w.Pod(serviceAccount)
	p.GenerateName = "worker-"
	w.Account(serviceAccount)
	w.Must(w.Create(w.T.Context(), p))
	return p
}

// workerToken creates a pod and returns the token that it would find.
func (w *environment) workerToken(serviceAccount string) string {
	w.T.Helper()
	return w.Token(serviceAccount, w.worker(serviceAccount), audience)
}

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
	body   map[string]string
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body["Code"]) }

func (w *environment) ask(token string) answer { return w.askContext(w.T.Context(), token) }

func (w *environment) askContext(ctx context.Context, token string) answer {
	w.T.Helper()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, podidentity.Path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	return send(w.T, w.server, r)
}

func send(t testing.TB, handler http.Handler, r *http.Request) answer {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	a := answer{status: recorder.Code, header: recorder.Header()}
	if err := json.Unmarshal(recorder.Body.Bytes(), &a.body); err != nil {
		t.Errorf("the answer %q is not JSON: %v", recorder.Body, err)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("the content type is %q", got)
	}
	if want := 2; a.status != http.StatusOK && (len(a.body) != want || a.body["Code"] == "" || a.body["Message"] == "") {
		t.Errorf("the answer of status %d is %v", a.status, a.body)
	}
	return a
}

// identity returns whose credentials an answer holds.
func (w *environment) identity(a answer) cloudtest.Identity {
	w.T.Helper()
	id, ok := w.cloud.AWS().Identity(a.body["AccessKeyId"])
	if a.status != http.StatusOK || !ok {
		w.T.Fatalf("got %v %v", a, a.body)
	}
	return id
}

// assumed counts AssumeRole for pods, leaving out the probes of the status.
func (w *environment) assumed() (n int) {
	for _, c := range w.cloud.Log() {
		if c.Action == "AssumeRole" && strings.Contains(fmt.Sprint(c.Parameters), "worker-") {
			n++
		}
	}
	return n
}

// gauge returns the value of a metric without labels of the newest replica.
func (w *environment) gauge(name string) (value float64) {
	w.T.Helper()
	families, err := w.options.Registerer.(prometheus.Gatherer).Gather() //nolint:forcetypeassert // a registry
	if err != nil {
		w.T.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	w.T.Fatalf("no metric %s", name)
	return 0
}

// recorder is an events.EventRecorder.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref, ok := regarding.(*corev1.ObjectReference)
	if !ok {
		panic(fmt.Sprintf("an Event on a %T", regarding))
	}
	r.events = append(r.events,
		fmt.Sprintf("%s %s %s %s: ", ref.Kind, ref.Name, eventType, reason)+fmt.Sprintf(note, args...))
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func (r *recorder) expectNone(t *testing.T) {
	t.Helper()
	if events := r.all(); len(events) > 0 {
		t.Errorf("there are Events: %q", events)
	}
}

func (r *recorder) find(parts ...string) bool {
	return slices.ContainsFunc(r.all(), func(e string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(e, p) })
	})
}

// lines are those of a log.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, args)
	}, funcr.Options{})
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}

// faultOfLatency delays AssumeRole for pods, not for probes.
func faultOfLatency(latency time.Duration) cloudtest.Fault {
	return cloudtest.Fault{Service: "sts", Action: "AssumeRole", Latency: latency,
		Match: func(c cloudtest.Call) bool { return strings.Contains(fmt.Sprint(c.Parameters), "worker-") }}
}
