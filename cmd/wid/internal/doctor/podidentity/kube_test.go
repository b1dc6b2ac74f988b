package podidentity_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	examine "github.com/workloadid/workloadid/cmd/wid/internal/doctor/podidentity"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

// kubeEnvironment is a real API server that asks the real webhook in one
// namespace of the Pod Security level restricted.
type kubeEnvironment struct {
	client.Client
	cluster   *kubetest.Cluster
	namespace string
	hook      *admissionv1.MutatingWebhookConfiguration
}

func newKubeEnvironment(t *testing.T) *kubeEnvironment {
	t.Helper()
	cluster := kubetest.Start(t)
	kubetest.Apply(t, cluster.Client(), v1alpha1.BindingCRD(), v1alpha1.AllowListCRD())
	w := &kubeEnvironment{cluster: cluster, namespace: cluster.Namespace(t)}
	kubetest.Eventually(t, "the API server serves IAMBindings", func() bool {
		w.Client = connect(t, cluster.Config())
		return w.List(t.Context(), &v1alpha1.IAMBindingList{}) == nil
	})
	w.label(t, map[string]any{"pod-security.kubernetes.io/enforce": "restricted"})
	binding := bindingOf("reporting", account)
	binding.Namespace = w.namespace
	w.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: account}})
	w.create(t, binding)
	w.accept(t, binding)
	return w
}

// accept plays the server.
func (w *kubeEnvironment) accept(t *testing.T, binding *v1alpha1.IAMBinding) {
	t.Helper()
	for _, kind := range []string{v1alpha1.ConditionAccepted, assumable} {
		binding.Status.Conditions = append(binding.Status.Conditions,
			metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test",
				ObservedGeneration: 1, LastTransitionTime: metav1.Now()})
	}
	if err := w.Status().Update(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	config.WarningHandlerWithContext = examine.Warnings{}
	c, err := client.New(config, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *kubeEnvironment) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func (w *kubeEnvironment) label(t *testing.T, labels map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if err := w.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// register registers the real webhook for the namespace.
func (w *kubeEnvironment) register(t *testing.T) {
	t.Helper()
	handler,
		err := webhook.New(webhook.Options{Bindings: w, Live: w, Image: "pod:1", Server: "https://server:8443",
		Audience: audience, CA: func() []byte { return []byte("PEM") }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	w.hook = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "pods." + w.namespace + ".iam.aws.k8s.io", AdmissionReviewVersions: []string{"v1"},
			SideEffects: new(admissionv1.SideEffectClassNone),
			ClientConfig: admissionv1.WebhookClientConfig{URL: new(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"iam.aws.k8s.io/injection": "enabled"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName,
					Operator: metav1.LabelSelectorOpIn, Values: []string{w.namespace}}}},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}},
		}}}
	w.create(t, w.hook)
	t.Cleanup(func() {
		if err := w.Delete(context.Background(), w.hook); err != nil {
			t.Error(err)
		}
	})
	w.label(t, map[string]any{"iam.aws.k8s.io/injection": "enabled"})
	kubetest.Eventually(t, "the API server asks the webhook", func() bool {
		pod := w.pod("")
		return w.Create(t.Context(), pod, client.DryRunAll) == nil && len(pod.Spec.InitContainers) > 0
	})
}

// pod passes the Pod Security level restricted.
func (w *kubeEnvironment) pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, GenerateName: "pod-"},
		Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: "node",
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "app", Image: "app", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}}
}

func (w *kubeEnvironment) run(t *testing.T, pod string) *doctor.Report {
	t.Helper()
	return examine.Run(t.Context(),
		examine.Config{Namespace: w.namespace, ServiceAccount: account, Pod: pod, Client: w,
			File: cli.KubeFile{Path: w.cluster.Kubeconfig(t)}})
}

// startSidecar plays the kubelet.
func (w *kubeEnvironment) startSidecar(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: podidentity.ProxyContainer, Started: new(true),
		State: running(time.Now())}}
	if err := w.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// shows waits for the headline, and runs its commands as printed.
func (w *kubeEnvironment) shows(t *testing.T, pod, part, reason, says string) {
	t.Helper()
	var report *doctor.Report
	kubetest.Eventually(t, part+" shows "+reason, func() bool {
		report = w.run(t, pod)
		f := report.Worst()
		return f == nil && reason == "" || f != nil && f.Check == part && report.Summary().Class == reason
	})
	if text := report.Text(doctor.TextOptions{Verbose: true, Width: 1000}); !strings.Contains(text, says) ||
		strings.Contains(text, secret) {
		t.Errorf("%s", text)
	}
	for _, command := range report.Summary().Remedy.Commands {
		if strings.Contains(command, " logs ") {
			continue // no kubelet runs here
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-c",
			filepath.Join(kubetest.Assets(t), command)).CombinedOutput(); err != nil { //nolint:gosec // a command of the doctor
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// The webhook, the answer to the dry run, the Events and the commands are real.
func TestWebhook(t *testing.T) {
	w := newKubeEnvironment(t)
	w.shows(t, "", "webhook", "NotInjected", `the label iam.aws.k8s.io/injection=""`)
	w.register(t)

	t.Run("a ServiceAccount", func(t *testing.T) { w.shows(t, "", "", "", "✓ webhook") })
	t.Run("a pod", func(t *testing.T) {
		w.create(t, w.pod("good"))
		pod := &corev1.Pod{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "good"}, pod); err != nil {
			t.Fatal(err)
		}
		// the state that the chain quotes then says why
		if c := pod.Spec.InitContainers[0]; c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
			t.Errorf("a sidecar that ends leaves %q", c.TerminationMessagePolicy)
		}
		w.shows(t, "good", "sidecar", "SidecarWaits", "it is not running")
		w.warn(t, pod, "Startup probe failed: Unavailable: no route to host")
		w.shows(t, "good", "sidecar", "Unhealthy", "no route to host")
		w.startSidecar(t, pod)
		w.shows(t, "good", "", "", "✓ sidecar")
	})
	t.Run("a pod that opts out", func(t *testing.T) {
		pod := w.pod("out")
		pod.Annotations = map[string]string{webhook.AnnotationInject: "false"}
		w.create(t, pod)
		w.shows(t, "out", "webhook", "NotInjected", `annotation iam.aws.k8s.io/inject="false"`)
	})
	t.Run("a pod with its own identity", func(t *testing.T) {
		pod := w.pod("keys")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_ACCESS_KEY_ID", Value: secret}}
		w.create(t, pod)
		w.startSidecar(t, pod)
		w.shows(t, "keys", "webhook", "AdmissionWarns", "sets AWS_ACCESS_KEY_ID, which AWS SDKs prefer")
	})
	t.Run("a pod that skips its containers", func(t *testing.T) {
		pod := w.pod("skips")
		pod.Annotations = map[string]string{webhook.AnnotationSkipContainers: "app"}
		w.create(t, pod)
		w.shows(t, "skips", "webhook", "NotInjected", "The API server warns: no container of the pod gets the credentials")
	})
	t.Run("no endpoint", func(t *testing.T) {
		w.hook.Webhooks[0].ClientConfig.URL = nil
		w.hook.Webhooks[0].ClientConfig.Service = &admissionv1.ServiceReference{Namespace: w.namespace, Name: "webhook"}
		if err := w.Update(t.Context(), w.hook); err != nil {
			t.Fatal(err)
		}
		w.shows(t, "", "webhook", "WebhookFails", `failed calling webhook "pods.`)
	})
}

// warn plays the kubelet.
func (w *kubeEnvironment) warn(t *testing.T, pod *corev1.Pod, message string) {
	t.Helper()
	w.create(t, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "pod-"},
		Type: corev1.EventTypeWarning, Reason: "Unhealthy", Message: message,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.namespace, Name: pod.Name, UID: pod.UID,
			FieldPath: "spec.initContainers{" + podidentity.ProxyContainer + "}"},
		LastTimestamp: metav1.Now()})
}
