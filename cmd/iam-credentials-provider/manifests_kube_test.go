package main

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// configDir is the folder of the manifests.
const configDir = "../../config/iam-credentials-provider"

// build returns the objects of a folder, as kubectl kustomize makes them.
func build(t testing.TB, dir string) (objects []*unstructured.Unstructured) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(kubetest.Assets(t), "kubectl"), "kustomize", dir)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &errOut)
	}
	return parse(t, string(out))
}

func parse(t testing.TB, text string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v: %s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

func pick[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) map[string]*T {
	t.Helper()
	found := map[string]*T{}
	for _, o := range objects {
		if o.GetKind() == kind {
			into := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
				t.Fatalf("%s %q: %v", kind, o.GetName(), err)
			}
			found[o.GetName()] = into
		}
	}
	if len(found) == 0 {
		t.Fatalf("no %s", kind)
	}
	return found
}

// environment is a scenario that runs this program.
type environment struct {
	podscenario.Scenario
	server  serverOptions
	webhook webhookOptions
}

func newEnvironment(t testing.TB, cluster *kubetest.Cluster) *environment {
	t.Helper()
	w := &environment{}
	w.Out = io.Discard
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := w.SetUpOn(cluster.Cluster); err != nil {
		t.Fatal(err)
	}
	w.configure(t)
	return w
}

// install returns an environment on the cluster that the tests share, and the
// objects of the manifests. The first test applies them, and each test removes
// what it adds to them.
func install(t testing.TB) (*environment, []*unstructured.Unstructured) {
	t.Helper()
	cluster := kubetest.Start(t)
	w := newEnvironment(t, cluster)
	objects := build(t, configDir)
	installed := w.Admin.Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{})
	switch {
	case apierrors.IsNotFound(installed):
		w.apply(t, objects)
	case installed != nil:
		t.Fatal(installed)
	}
	t.Cleanup(func() { w.cleanUp(t, cluster) })
	return w, objects
}

// apply creates the objects. The webhook's registration names a Service that
// nothing routes to.
func (w *environment) apply(t testing.TB, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		var options []client.CreateOption
		switch {
		case o.GetKind() == "MutatingWebhookConfiguration":
			options = append(options, client.DryRunAll)
		// an overlay has to name the API server
		case o.GetKind() == "NetworkPolicy" && o.GetName() == podscenario.WebhookAccount:
			if err := w.Admin.Create(t.Context(), o.DeepCopy(), client.DryRunAll); !apierrors.IsInvalid(err) ||
				!strings.Contains(err.Error(), "API_SERVER_CIDR") {
				t.Errorf("the webhook is open to every client: %v", err)
			}
			continue
		}
		options = append(options, client.FieldValidation(metav1.FieldValidationStrict))
		if err := w.Admin.Create(t.Context(), o.DeepCopy(), options...); err != nil {
			t.Fatalf("%s %q: %v", o.GetKind(), o.GetName(), err)
		}
	}
	if err := w.AwaitKinds(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cleanUp removes what a test has created, after its programs have ended.
func (w *environment) cleanUp(t testing.TB, cluster *kubetest.Cluster) {
	t.Helper()
	w.Wait()
	ctx := context.WithoutCancel(t.Context())
	for _, o := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{},
		&v1alpha1.IAMRoleAllowList{}} {
		if err := w.Admin.DeleteAllOf(ctx, o); err != nil {
			t.Error(err)
		}
	}
	for _, o := range []client.Object{&corev1.Secret{}, &coordinationv1.Lease{}} {
		if err := w.Admin.DeleteAllOf(ctx, o, client.InNamespace(namespace)); err != nil {
			t.Error(err)
		}
	}
	cluster.DeleteNamespace(t, podscenario.Tenant)
}

func (w *environment) configure(t testing.TB) {
	t.Helper()
	_, text, err := net.SplitHostPort(w.Sidecar)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	both := common{audience: podscenario.Audience, certs: w.Dir, metricsAddress: "0", probeAddress: "0",
		registerer: prometheus.NewRegistry()}
	w.server = serverOptions{common: both, cluster: podscenario.ClusterName, region: podscenario.Region, pods: 100,
		leaderElect: true, leaderElectNamespace: namespace, auth: w.Login()}
	w.webhook = webhookOptions{common: both, image: podscenario.Image, server: w.ServerURL(), port: port}
	w.webhook.serverCA = filepath.Join(w.Dir, "ca.crt")
	w.server.listen, w.webhook.listen = w.Server, w.Webhook
	w.RunServer = func(ctx context.Context, kube *rest.Config) error { return runServer(ctx, kube, w.server) }
	w.RunWebhook = func(ctx context.Context, kube *rest.Config) error { return runWebhook(ctx, kube, w.webhook) }
}

// play runs steps of the scenario.
func play(ctx context.Context, t testing.TB, steps ...func(context.Context) error) {
	t.Helper()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestManifests(t *testing.T) {
	w, objects := install(t)
	deployments := pick[appsv1.Deployment](t, objects, "Deployment")
	if len(deployments) != 3 {
		t.Errorf("%d Deployments", len(deployments))
	}
	for name, deployment := range deployments {
		t.Run(name, func(t *testing.T) {
			template := deployment.Spec.Template
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: template.Labels},
				Spec: template.Spec}
			if err := w.Admin.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Errorf("the namespace refuses the pods: %v", err)
			}
			checkArguments(t, objects, template.Spec.Containers[0])
			checkContainer(t, template.Spec.Containers[0])
			checkAvailability(t, objects, deployment)
			if name != podscenario.CertificatesAccount {
				checkMount(t, objects, deployment)
				checkDrain(t, template.Spec)
			}
		})
	}
}

func checkContainer(t *testing.T, c corev1.Container) {
	t.Helper()
	if c.Image != "ghcr.io/workloadid/iam-credentials-provider:v0.1.0" {
		t.Errorf("image %q", c.Image)
	}
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	if !ports["metrics"] || !ports["probes"] || c.ReadinessProbe.HTTPGet.Port.StrVal != "probes" ||
		c.LivenessProbe.HTTPGet.Port.StrVal != "probes" {
		t.Errorf("ports %v", c.Ports)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() ||
		c.Resources.Limits.Memory().IsZero() {
		t.Errorf("resources %v", c.Resources)
	}
	if !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool {
		return v.Name == "GOMEMLIMIT" && v.ValueFrom.ResourceFieldRef.Resource == "limits.memory"
	}) {
		t.Errorf("GOMEMLIMIT is not that of the container: %v", c.Env)
	}
}

func checkAvailability(t *testing.T, objects []*unstructured.Unstructured, deployment *appsv1.Deployment) {
	t.Helper()
	labels := deployment.Spec.Template.Labels
	if *deployment.Spec.Replicas < 2 {
		t.Error("one replica")
	}
	if budget := pick[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")[deployment.Name]; budget == nil ||
		!mapsContain(labels, budget.Spec.Selector.MatchLabels) {
		t.Errorf("PodDisruptionBudget %v", budget)
	}
	if policy := pick[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")[deployment.Name]; policy == nil ||
		!mapsContain(labels, policy.Spec.PodSelector.MatchLabels) {
		t.Errorf("NetworkPolicy %v", policy)
	}
	if spread := deployment.Spec.Template.Spec.TopologySpreadConstraints; len(spread) != 1 ||
		!mapsContain(labels, spread[0].LabelSelector.MatchLabels) {
		t.Errorf("topology spread %v", spread)
	}
}

func checkDrain(t *testing.T, spec corev1.PodSpec) {
	t.Helper()
	sleep := spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds
	if grace, drain := *spec.TerminationGracePeriodSeconds, int64(30); sleep < 5 || grace < sleep+drain {
		t.Errorf("%d s of grace for %d s in which connections still come and %d s to finish requests", grace, sleep, drain)
	}
}

// checkArguments parses the arguments as the program does, with the variables
// of the ConfigMap.
func checkArguments(t *testing.T, objects []*unstructured.Unstructured, c corev1.Container) {
	t.Helper()
	settings := map[string]string{}
	for _, from := range c.EnvFrom {
		settings = pick[corev1.ConfigMap](t, objects, "ConfigMap")[from.ConfigMapRef.Name].Data
	}
	var args []string
	for _, arg := range c.Args {
		for key, value := range settings {
			arg = strings.ReplaceAll(arg, "$("+key+")", value)
		}
		if args = append(args, arg); strings.Contains(arg, "$(") {
			t.Errorf("a variable that the settings lack: %s", arg)
		}
	}
	cmd, rest, err := newRoot(io.Discard).Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateRequiredFlags()
	}
	if err != nil {
		t.Errorf("%q: %v", args, err)
	}
}

// checkMount compares names: the program certificates writes a Secret with the
// name of the Service.
func checkMount(t *testing.T, objects []*unstructured.Unstructured, deployment *appsv1.Deployment) {
	t.Helper()
	service := pick[corev1.Service](t, objects, "Service")[deployment.Name]
	if !mapsContain(deployment.Spec.Template.Labels, service.Spec.Selector) {
		t.Errorf("the Service selects %v", service.Spec.Selector)
	}
	if secret := deployment.Spec.Template.Spec.Volumes[0].Secret; secret.SecretName != service.Name ||
		secret.Optional != nil {
		t.Errorf("mounts %v, want %q, for which the kubelet waits", secret, service.Name)
	}
}

// checkCertManager compares names: cert-manager itself does not run here.
func checkCertManager(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if o.GetName() == podscenario.CertificatesAccount {
			t.Errorf("%s %q is left", o.GetKind(), o.GetName())
		}
		if o.GetKind() == "MutatingWebhookConfiguration" && o.GetAnnotations()["cert-manager.io/inject-ca-from"] != namespace+
			"/"+webhookName {
			t.Errorf("annotations %v", o.GetAnnotations())
		}
	}
	type certificate struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              map[string]any `json:"spec"`
	}
	issuers, certificates := pick[certificate](t, objects, "Issuer"), pick[certificate](t, objects, "Certificate")
	for _, c := range certificates {
		issuer, _ := c.Spec["issuerRef"].(map[string]any)
		if name, _ := issuer["name"].(string); issuers[name] == nil {
			t.Errorf("Certificate %q names Issuer %q", c.Name, name)
		}
	}
	for name, deployment := range pick[appsv1.Deployment](t, objects, "Deployment") {
		secret := deployment.Spec.Template.Spec.Volumes[0].Secret.SecretName
		c := certificates[secret]
		if c == nil || c.Spec["secretName"] != secret ||
			!slices.Contains(c.Spec["dnsNames"].([]any), //nolint:forcetypeassert // the test fails then too
				any(name+"."+namespace+".svc")) {
			t.Errorf("no certificate of the Service %q in the Secret %q: %v", name, secret, c)
		}
	}
}

func mapsContain(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// Only namespaces that opt in ask the webhook, and the API server never waits
// for it in its own namespace or in kube-system.
func TestWebhookRegistration(t *testing.T) {
	w, _ := install(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	play(ctx, t, w.Start, w.Allow, w.Bind, w.Inject)
	cancel()
	w.Wait() // now the webhook refuses every connection
	for name, asked := range map[string]bool{podscenario.Tenant: true, "default": false, "kube-system": false,
		namespace: false} {
		t.Run(name, func(t *testing.T) {
			if name != "default" {
				w.label(t, name, `"enabled"`)
				t.Cleanup(func() { w.label(t, name, `null`) })
			}
			pod, err := podscenario.NewPod("other")
			if err != nil {
				t.Fatal(err)
			}
			pod.Namespace, pod.Spec.ServiceAccountName = name, "default"
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
			if err := client.IgnoreAlreadyExists(w.Admin.Create(t.Context(), account)); err != nil {
				t.Fatal(err)
			}
			if err := w.Admin.Create(t.Context(), pod, client.DryRunAll); (err != nil) != asked {
				t.Errorf("asked: %v", err)
			}
		})
	}
}

// label sets the label of injection, or removes it.
func (w *environment) label(t *testing.T, namespace, value string) {
	t.Helper()
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"labels":{"iam.aws.k8s.io/injection":`+value+`}}}`))
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := w.Admin.Patch(context.WithoutCancel(t.Context()), object, patch); err != nil {
		t.Fatal(err)
	}
}

// Each program does its work with the rights of its ServiceAccount, is refused
// nothing, and has no right that it does not use.
func TestRights(t *testing.T) {
	w, objects := install(t)
	start := time.Now()
	cluster := &kubetest.Cluster{Cluster: w.Cluster}
	for account, last := range map[string]authorizationv1.ResourceAttributes{
		name:                       {Group: "events.k8s.io", Resource: "events", Verb: "create"},
		podscenario.WebhookAccount: {Group: "iam.aws.k8s.io", Resource: "iambindings", Verb: "list"},
		podscenario.CertificatesAccount: {Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations",
			Name: webhookName, Verb: "patch"},
	} {
		cluster.Await(t, authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + namespace + ":" + account,
			ResourceAttributes: &last})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newRotation(t, w)
	r.at(t, time.Now().Add(-61*day))
	play(ctx, t, w.Start)
	r.at(t, time.Now())
	play(ctx, t, w.Allow, w.Bind, w.Inject, w.AwaitCredentials, w.Conflict)
	kubetest.Eventually(t, "there is an Event on the pod", func() bool {
		events := &eventsv1.EventList{}
		err := w.Admin.List(ctx, events, client.InNamespace(podscenario.Tenant))
		return err == nil && slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "Pod" && e.Reason == "Conflict"
		})
	})
	cancel()
	w.Wait()
	for _, account := range []string{name, podscenario.WebhookAccount, podscenario.CertificatesAccount} {
		t.Run(account, func(t *testing.T) { checkRights(t, cluster, start, objects, account) })
	}
}

func checkRights(t *testing.T, cluster *kubetest.Cluster, start time.Time, objects []*unstructured.Unstructured,
	account string) {
	t.Helper()
	unused := map[string]bool{}
	rules := pick[rbacv1.ClusterRole](t, objects, "ClusterRole")[account].Rules
	if role := pick[rbacv1.Role](t, objects, "Role")[account]; role != nil {
		rules = append(rules, role.Rules...)
	}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				unused[verb+" "+resource] = true
			}
		}
	}
	delete(unused, "patch events") // of an Event that repeats
	// Informers of this Kubernetes stream the first list, and those of others
	// do not.
	maps.DeleteFunc(unused, func(right string, _ bool) bool { return strings.HasPrefix(right, "list ") })
	for _, r := range cluster.Audit(t, "system:serviceaccount:"+namespace+":"+account) {
		if r.Time.Before(start) { // another test's
			continue
		}
		if r.Code == http.StatusForbidden {
			t.Errorf("refused: %s %s %s", r.Verb, r.Resource, r.Subresource)
		}
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		delete(unused, r.Verb+" "+resource)
	}
	if len(unused) > 0 {
		t.Errorf("rights that are not used: %v", unused)
	}
}

// The programs say that they live and are ready.
func TestReady(t *testing.T) {
	w, _ := install(t)
	var probes [3]string
	for i := range probes {
		var err error
		if probes[i], err = podscenario.FreeAddress(); err != nil {
			t.Fatal(err)
		}
	}
	w.server.probeAddress, w.webhook.probeAddress = probes[0], probes[1]
	certificates := certificateOptions{common: w.server.common, namespace: namespace, now: time.Now}
	certificates.probeAddress = probes[2]
	runCertificates := func(ctx context.Context, kube *rest.Config) error {
		return runCertificates(ctx, kube, certificates)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i, run := range []func(context.Context, *rest.Config) error{w.RunServer, w.RunWebhook, runCertificates} {
		account := []string{name, podscenario.WebhookAccount, podscenario.CertificatesAccount}[i]
		t.Run(account, func(t *testing.T) {
			kube, err := w.ConfigOf(t.Context(), account)
			if err != nil {
				t.Fatal(err)
			}
			w.Go(account, func() error { return run(ctx, kube) })
			for _, path := range []string{"/healthz", "/readyz"} {
				kubetest.Eventually(t, path+" answers", func() bool { return probe(t, probes[i], path) == http.StatusOK })
			}
		})
	}
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true,
		NextProtos: []string{"h2", "http/1.1"}}} //nolint:gosec // only the protocol matters
	conn, err := dialer.DialContext(ctx, "tcp", w.webhook.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	//nolint:forcetypeassert // of a tls.Dialer
	if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the webhook selects %s, so all requests of the API server share the memory of one connection", got)
	}
}

func probe(t *testing.T, address, path string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}
