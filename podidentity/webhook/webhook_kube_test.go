package webhook_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

// environment is a real API server that asks the webhook in its own namespaces.
type environment struct {
	*podscenario.Environment

	warned *warned
}

// warned collects the warnings that a client gets.
type warned struct {
	sync.Mutex
	texts []string
}

func (w *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warned) take() []string {
	w.Lock()
	defer w.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// newEnvironment registers the webhook, with the cache of a manager, and waits
// until the API server asks it. Each handler is a further webhook, which the
// API server asks afterwards.
func newEnvironment(t testing.TB, cluster *kubetest.Cluster, others ...http.Handler) *environment {
	t.Helper()
	w := &environment{Environment: podscenario.New(t, cluster), warned: &warned{}}
	config := cluster.Config()
	config.WarningHandlerWithContext = w.warned
	var err error
	w.Client, err = client.New(config, client.Options{Scheme: w.Scheme()})
	w.Must(err)
	o := options()
	o.Live = w.Client
	o.Bindings = startCache(t, cluster.Config(), w.Scheme())
	w.label(t, map[string]string{"kubetest": w.Namespace, "pod-security.kubernetes.io/enforce": "restricted"})
	for _, account := range []string{"default", "canary"} { // for the plugin of ServiceAccounts, where it runs
		w.Account(account)
	}
	w.register(t, append([]http.Handler{newHandler(t, o)}, others...)...)
	return w
}

func startCache(t testing.TB, config *rest.Config, scheme *runtime.Scheme) client.Reader {
	t.Helper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.RunManager(t, mgr)
	if !mgr.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not start")
	}
	return mgr.GetClient()
}

func (w *environment) label(t testing.TB, labels map[string]string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	if err := w.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

const configuration = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: pods.%s.iam.aws.k8s.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  namespaceSelector: {matchLabels: {kubetest: %s}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods, pods/*], operations: [CREATE, UPDATE], scope: Namespaced}
  clientConfig: {url: %q, caBundle: %s}
`

// register registers handlers in their order and waits until the API server
// asks the first.
func (w *environment) register(t testing.TB, handlers ...http.Handler) {
	t.Helper()
	for i, h := range handlers {
		server := httptest.NewTLSServer(h)
		t.Cleanup(server.Close)
		object := &unstructured.Unstructured{}
		bundle, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%s-%d", w.Namespace, i) // the API server asks in the order of the names
		if err := yaml.UnmarshalStrict(fmt.Appendf(nil, configuration, name, w.Namespace, w.Namespace, server.URL, bundle),
			&object.Object); err != nil {
			t.Fatal(err)
		}
		w.create(t, object)
		t.Cleanup(func() {
			if err := w.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
	canary := bindingOf(w.Namespace, "canary")
	w.create(t, canary)
	kubetest.Eventually(t, "the API server asks the webhooks", func() bool {
		pod := w.Pod("canary")
		err := w.Create(t.Context(), pod, client.DryRunAll)
		return err == nil && len(pod.Spec.InitContainers) > 0 && (len(handlers) == 1 || len(pod.Spec.Containers) > 1)
	})
	w.warned.take()
}

func bindingOf(namespace, account string) *v1alpha1.IAMBinding {
	return podscenario.Binding(namespace, account, "arn:aws:iam::123456789012:role/app")
}

func (w *environment) create(t testing.TB, object client.Object, opts ...client.CreateOption) {
	t.Helper()
	if err := w.Create(t.Context(), object, opts...); err != nil {
		t.Fatal(err)
	}
}

func (w *environment) bind(t testing.TB, account string) {
	t.Helper()
	w.create(t, bindingOf(w.Namespace, account))
}

// adder is another team's webhook, which adds a container and an init
// container.
func adder(t testing.TB) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil {
			t.Error(err)
		}
		pod := decode(t, string(review.Request.Object.Raw))
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if review.Request.Operation == admissionv1.Create &&
			!slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "mesh" }) {
			c :=
				`{"name":"mesh","image":"mesh","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}`
			review.Response.Patch = []byte(`[{"op":"add","path":"/spec/containers/0","value":` + c + `}]`)
			review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
		review.Request = nil
		if err := json.NewEncoder(rw).Encode(review); err != nil {
			t.Error(err)
		}
	})
}

func TestAdmissionInARestrictedNamespace(t *testing.T) {
	w := newEnvironment(t, kubetest.Start(t))
	w.bind(t, "app")
	t.Run("an injected pod passes", func(t *testing.T) {
		pod := w.Pod("app")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(9007199254740993))
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(9223372036854775807))}}
		w.create(t, pod)
		if pod.Spec.InitContainers[0].Name != podidentity.ProxyContainer || env(pod.Spec.Containers[0])[fullURI] == "" {
			t.Errorf("got %+v", pod.Spec)
		}
		if *pod.Spec.TerminationGracePeriodSeconds != 9007199254740993 ||
			*pod.Spec.Tolerations[0].TolerationSeconds != 9223372036854775807 {
			t.Error("a large number has changed")
		}
		again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "again-"}, Spec: pod.Spec}
		w.create(t, again)
		if len(again.Spec.InitContainers) != 1 || len(again.Spec.Containers[0].Env) != 2 ||
			len(again.Spec.Volumes) != len(pod.Spec.Volumes) {
			t.Errorf("the pod is injected twice: %+v", again.Spec)
		}
	})
	t.Run("the redirect does not pass", func(t *testing.T) {
		pod := w.Pod("app")
		pod.Annotations = map[string]string{webhook.AnnotationRedirect: "true"}
		err := w.Create(t.Context(), pod)
		if !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), `"iam-credentials-redirect" must not include "NET_ADMIN"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("updates, ephemeral containers and resizing pass", func(t *testing.T) {
		pod := w.Pod("app")
		w.create(t, pod)
		pod.Labels = map[string]string{"a": "b"}
		if err := w.Update(t.Context(), pod); err != nil {
			t.Error(err)
		}
		debug := pod.Spec.Containers[0]
		debug.Name, debug.Env = "debug", nil
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: debug.Name, Image: debug.Image, SecurityContext: debug.SecurityContext, ImagePullPolicy: corev1.PullAlways,
			TerminationMessagePolicy: corev1.TerminationMessageReadFile}}}
		if err := w.SubResource("ephemeralcontainers").Update(t.Context(), pod); err != nil {
			t.Error(err)
		}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
		if err := w.SubResource("resize").Update(t.Context(), pod); err != nil {
			t.Error(err)
		}
		if len(pod.Spec.EphemeralContainers) != 1 || len(pod.Spec.EphemeralContainers[0].Env) > 0 ||
			len(pod.Spec.InitContainers) != 1 {
			t.Errorf("got %+v", pod.Spec)
		}
	})
	t.Run("the deprecated field serviceAccount", func(t *testing.T) {
		pod := w.Pod("")
		pod.Spec.DeprecatedServiceAccount = "app"
		if err := w.Create(t.Context(), pod); err != nil || len(pod.Spec.InitContainers) != 1 {
			t.Errorf("got %+v: %v", pod.Spec, err)
		}
	})
}

// The API server calls the webhook again after another one has added a
// container in front.
func TestReinvocation(t *testing.T) {
	w := newEnvironment(t, kubetest.Start(t), adder(t))
	w.bind(t, "app")
	pod := w.Pod("app")
	w.create(t, pod)
	if len(pod.Spec.Containers) != 2 || len(pod.Spec.InitContainers) != 1 || pod.Spec.Containers[0].Name != "mesh" {
		t.Fatalf("got %+v", pod.Spec)
	}
	want := env(pod.Spec.InitContainers[0])[secret]
	for _, c := range pod.Spec.Containers {
		if e := env(c); want == "" || e[secret] != want || len(c.Env) != 2 {
			t.Errorf("container %q has %v", c.Name, e)
		}
	}
}

// The API server's own admission plugin for ServiceAccounts runs before and
// after the webhook.
func TestWithTheServiceAccountPlugin(t *testing.T) {
	cluster := kubetest.StartNew(t, kubetest.Flag{Name: "disable-admission-plugins", Value: "DefaultStorageClass"})
	w := newEnvironment(t, cluster)
	w.bind(t, "default")
	pod := w.Pod("")
	w.create(t, pod)
	if len(pod.Spec.InitContainers) != 1 || len(pod.Spec.Volumes) != 2 || env(pod.Spec.Containers[0])[fullURI] == "" ||
		len(pod.Spec.Containers[0].VolumeMounts) != 1 {
		t.Errorf("got %+v", pod.Spec)
	}
	again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "again-"}, Spec: pod.Spec}
	if err := w.Create(t.Context(), again); err != nil {
		t.Error(err)
	}
}

// A ResourceQuota on limits.cpu refuses pods with a container that has no CPU
// limit, the sidecar included.
func TestNamespaceWithAQuotaOnCPULimits(t *testing.T) {
	w := newEnvironment(t, kubetest.Start(t))
	w.bind(t, "app")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "cpu"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("2")}}}
	w.create(t, quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard,
		Used: corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("0")}}
	if err := w.Status().Update(t.Context(), quota); err != nil { // as kube-controller-manager does
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the quota counts", func() bool {
		err := w.Create(t.Context(), w.Pod("app"))
		return err != nil && strings.Contains(err.Error(), "must specify limits.cpu")
	})
	pod := w.Pod("app")
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	}
	w.create(t, pod)
	if got := pod.Spec.InitContainers[0].Resources.Limits.Cpu().String(); got != "100m" {
		t.Errorf("the sidecar's CPU limit is %s", got)
	}
}
