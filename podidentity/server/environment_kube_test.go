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
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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
// server that runs in a manager, with a namespace of its own.
type environment struct {
	t         testing.TB
	cluster   *kubetest.Cluster
	admin     client.Client
	cloud     *cloudtest.Cloud
	namespace string
	manager   ctrl.Manager
	server    *server.Server
	options   server.Options
	events    *recorder
	audit     *lines
	// elects turns leader election on, records sends Events to the API server.
	elects, records bool
	series          *series
	// connections is Options.MaxConnections.
	connections int
}

// newEnvironment calls prepare before the server starts.
func newEnvironment(t testing.TB, prepare ...func(*environment)) *environment {
	t.Helper()
	w := &environment{t: t, cluster: kubetest.Start(t), cloud: testenv.Cloud(t), events: &recorder{}, audit: &lines{}}
	w.install()
	w.namespace = w.cluster.Namespace(t)
	w.allow(v1alpha1.AllowRule{Namespaces: []string{"*"}, Roles: []string{roles + "*"}})
	w.setIdentity()
	for _, p := range prepare {
		p(w)
	}
	w.manager, w.server = w.replica()
	w.start(w.manager)
	return w
}

func (w *environment) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// replica returns one more server with a cache of its own, whose manager does
// not run yet.
func (w *environment) replica() (ctrl.Manager, *server.Server) {
	w.t.Helper()
	config := rest.CopyConfig(w.cluster.User(w.t, "podidentity-server", "", rules()...))
	config.QPS = -1
	mgr, err := ctrl.NewManager(config,
		ctrl.Options{Scheme: scheme(w.t), LeaderElection: w.elects, LeaderElectionID: "podidentity",
			LeaderElectionNamespace: w.namespace, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
			Logger: logr.Discard(), Cache: crcache.Options{DefaultNamespaces: map[string]crcache.Config{w.namespace: {}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.options = server.Options{Client: mgr.GetClient(), Audience: audience, Cluster: "prod", Cache: testenv.Cache(w.t),
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
		w.t.Fatal(err)
	}
	if err := s.SetupWithManager(mgr); err != nil {
		w.t.Fatal(err)
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
	w.t.Helper()
	stop = kubetest.RunManager(w.t, mgr)
	if !mgr.GetCache().WaitForCacheSync(w.t.Context()) {
		w.t.Fatal("the informers have not synced")
	}
	return stop
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// install creates the CRDs, without the policy: tests of the server make
// bindings that the policy would refuse.
func (w *environment) install() {
	w.t.Helper()
	kubetest.Apply(w.t, w.cluster.Client(), v1alpha1.BindingCRD(), v1alpha1.AllowListCRD())
	w.eventually("the API server serves the kinds", func() bool {
		var err error
		w.admin, err = client.New(w.cluster.Config(), client.Options{Scheme: scheme(w.t)})
		return err == nil && w.admin.List(w.t.Context(), &v1alpha1.IAMBindingList{}) == nil &&
			w.admin.List(w.t.Context(), &v1alpha1.IAMRoleAllowListList{}) == nil
	})
}

func (w *environment) eventually(what string, done func() bool) {
	w.t.Helper()
	kubetest.Eventually(w.t, what, done)
}

// allow replaces the rules of the allow-list.
func (w *environment) allow(rules ...v1alpha1.AllowRule) {
	w.t.Helper()
	list := &v1alpha1.IAMRoleAllowList{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName}}
	err := w.admin.Get(w.t.Context(), client.ObjectKeyFromObject(list), list)
	list.Spec.Rules = append([]v1alpha1.AllowRule{}, rules...)
	if apierrors.IsNotFound(err) {
		err = w.admin.Create(w.t.Context(), list)
	} else if err == nil {
		err = w.admin.Update(w.t.Context(), list)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// setIdentity makes this process a pod with IAM roles for service accounts.
func (w *environment) setIdentity() {
	w.t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_ENDPOINT_URL", "AWS_REGION"} {
		w.t.Setenv(name, "")
	}
	nothing := filepath.Join(w.t.TempDir(), "nothing")
	w.t.Setenv("AWS_CONFIG_FILE", nothing)
	w.t.Setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)
	w.t.Setenv("AWS_EC2_METADATA_DISABLED", "true")

	w.serviceAccount("server")
	file := filepath.Join(w.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(w.token("server", nil, aws.DefaultAudience)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
	w.t.Setenv("AWS_ROLE_ARN", serverRole)
	w.cloud.AWS().AddOIDCProvider(account, w.cluster.IssuerURL(), w.cluster.IssuerClient(w.t), aws.DefaultAudience)
	w.trustServer()
}

func (w *environment) trustServer() {
	w.cloud.AWS().SetRole(serverRole,
		cloudtest.Trust{Issuer: w.cluster.IssuerURL(),
			Subjects: []string{"system:serviceaccount:" + w.namespace + ":server"}})
}

func (w *environment) serviceAccount(name string) {
	w.t.Helper()
	err := w.admin.Create(w.t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
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
	w.t.Helper()
	w.serviceAccount(serviceAccount)
	b := &v1alpha1.IAMBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "binding-"},
		Spec: v1alpha1.IAMBindingSpec{AWS: v1alpha1.AWSRole{RoleARN: role},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: serviceAccount}},
	}
	for _, c := range change {
		c(b)
	}
	w.must(w.admin.Create(w.t.Context(), b))
	w.eventually("the informer has the binding", func() bool {
		return w.manager.GetClient().Get(w.t.Context(), client.ObjectKeyFromObject(b), &v1alpha1.IAMBinding{}) == nil
	})
	return b
}

// worker creates a pod, which runs nowhere. Its name begins with "worker-", by
// which calls for pods are told from those of probes.
func (w *environment) worker(serviceAccount string) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "worker-"},
		Spec: corev1.PodSpec{ServiceAccountName: serviceAccount, Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	w.serviceAccount(serviceAccount)
	w.must(w.admin.Create(w.t.Context(), p))
	return p
}

// token returns a token of a ServiceAccount, bound to a pod unless that is nil.
func (w *environment) token(serviceAccount string, p *corev1.Pod, audiences ...string) string {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if p != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name,
			UID: p.UID}
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: serviceAccount}}
	w.must(w.admin.SubResource("token").Create(w.t.Context(), sa, request))
	return request.Status.Token
}

// workerToken creates a pod and returns the token that it would find.
func (w *environment) workerToken(serviceAccount string) string {
	w.t.Helper()
	return w.token(serviceAccount, w.worker(serviceAccount), audience)
}

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
	body   map[string]string
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body["Code"]) }

func (w *environment) ask(token string) answer { return w.askContext(w.t.Context(), token) }

func (w *environment) askContext(ctx context.Context, token string) answer {
	w.t.Helper()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, podidentity.Path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	return send(w.t, w.server, r)
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
	w.t.Helper()
	id, ok := w.cloud.AWS().Identity(a.body["AccessKeyId"])
	if a.status != http.StatusOK || !ok {
		w.t.Fatalf("got %v %v", a, a.body)
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
	w.t.Helper()
	families, err := w.options.Registerer.(prometheus.Gatherer).Gather() //nolint:forcetypeassert // a registry
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	w.t.Fatalf("no metric %s", name)
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
