package podidentity_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/auth/podidentity/webhook"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
	examine "github.com/workloadid/workloadid/internal/doctor/podidentity"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// kubeEnvironment is a real API server that asks the real webhook in one namespace of the Pod Security level restricted.
type kubeEnvironment struct {
	client.Client
	cluster   *kubetest.Cluster
	namespace string
	hook      *admissionv1.MutatingWebhookConfiguration
}

func newKubeEnvironment(t *testing.T) *kubeEnvironment {
	t.Helper()
	cluster := kubetest.Start(t)
	for _, crd := range []string{v1alpha1.BindingCRD, v1alpha1.AllowListCRD} {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(crd), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Client().Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	w := &kubeEnvironment{cluster: cluster, namespace: cluster.Namespace(t)}
	eventually(t, "the API server serves IAMBindings", func() bool {
		w.Client = connect(t, cluster.Config())
		return w.List(t.Context(), &v1alpha1.IAMBindingList{}) == nil
	})
	w.label(t, map[string]any{"pod-security.kubernetes.io/enforce": "restricted"})
	binding := bindingOf("reporting", account)
	binding.Namespace = w.namespace
	w.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: account}})
	w.create(t, binding)
	w.setAccepted(t, metav1.ConditionTrue, "Test")
	return w
}

// setAccepted plays the server.
func (w *kubeEnvironment) setAccepted(t *testing.T, accepted metav1.ConditionStatus, reason string) {
	t.Helper()
	binding := &v1alpha1.IAMBinding{}
	err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "reporting"}, binding)
	if err == nil {
		binding.Status.Conditions = nil
		for kind, status := range map[string]metav1.ConditionStatus{v1alpha1.ConditionAccepted: accepted, v1alpha1.ConditionRoleAssumable: metav1.ConditionTrue} {
			binding.Status.Conditions = append(binding.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, ObservedGeneration: 1, LastTransitionTime: metav1.Now()})
		}
		err = w.Status().Update(t.Context(), binding)
	}
	if err != nil {
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

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still not so: %s", what)
		}
	}
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
	handler, err := webhook.New(webhook.Options{Bindings: w, Live: w, Image: "pod:1", Server: "https://server:8443", Audience: audience, CA: func() []byte { return []byte("PEM") }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	w.hook = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Webhooks: []admissionv1.MutatingWebhook{{
		Name: "pods." + w.namespace + ".iam.aws.k8s.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone),
		ClientConfig: admissionv1.WebhookClientConfig{URL: new(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"iam.aws.k8s.io/injection": "enabled"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{w.namespace}}}},
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
	eventually(t, "the API server asks the webhook", func() bool {
		pod := w.pod("")
		return w.Create(t.Context(), pod, client.DryRunAll) == nil && len(pod.Spec.InitContainers) > 0
	})
}

// pod passes the Pod Security level restricted.
func (w *kubeEnvironment) pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, GenerateName: "pod-"}, Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: "node",
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "app", Image: "app", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}}
}

func (w *kubeEnvironment) run(t *testing.T, change ...func(*examine.Config)) *doctor.Report {
	t.Helper()
	config := examine.Config{Namespace: w.namespace, ServiceAccount: account, Client: w}
	for _, c := range change {
		c(&config)
	}
	return examine.Run(t.Context(), config)
}

func ofPod(name string) func(*examine.Config) {
	return func(c *examine.Config) { c.Pod = name }
}

func (w *kubeEnvironment) startSidecar(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: podidentity.ProxyContainer, Started: new(true)}}
	if err := w.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// The webhook, the answer to the dry run, the token and its review are real.
func TestWebhook(t *testing.T) {
	w := newKubeEnvironment(t)
	w.create(t, w.pod("old"))
	reporttest.Headline(t, w.run(t), reporttest.Want{Check: "injection", Class: "NamespaceNotLabelled"})
	w.register(t)

	t.Run("a ServiceAccount", func(t *testing.T) { reporttest.Healthy(t, w.run(t)) })
	t.Run("a pod", func(t *testing.T) {
		w.create(t, w.pod("good"))
		pod := &corev1.Pod{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "good"}, pod); err != nil {
			t.Fatal(err)
		}
		w.startSidecar(t, pod)
		report := w.run(t, ofPod("good"))
		reporttest.Healthy(t, report)
		if report.Of("token").Result != doctor.Pass || report.Of("sidecar").Result != doctor.Pass {
			t.Errorf("%s", report.Text(doctor.TextOptions{Verbose: true}))
		}
		reporttest.Headline(t, w.run(t, ofPod("good"), func(c *examine.Config) { c.Audience = "other.example" }), reporttest.Want{Check: "token", Class: "AudienceDiffers"})
	})
	t.Run("a pod older than the webhook", func(t *testing.T) {
		reporttest.Headline(t, w.run(t, ofPod("old")), reporttest.Want{Check: "injection", Class: "PodNotInjected"})
	})
	t.Run("a pod that opts out", func(t *testing.T) {
		pod := w.pod("out")
		pod.Annotations = map[string]string{webhook.AnnotationInject: "false"}
		w.create(t, pod)
		reporttest.Headline(t, w.run(t, ofPod("out")), reporttest.Want{Check: "injection", Class: "PodOptsOut"})
	})
	t.Run("a pod with its own identity", func(t *testing.T) {
		pod := w.pod("keys")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_ACCESS_KEY_ID", Value: secret}}
		w.create(t, pod)
		w.startSidecar(t, pod)
		reporttest.Headline(t, w.run(t, ofPod("keys")), reporttest.Want{Check: "injection", Class: "AdmissionWarns", Result: doctor.Warn, Says: "sets AWS_ACCESS_KEY_ID, which AWS SDKs prefer"}, secret)
	})
	t.Run("a pod that skips its containers", func(t *testing.T) {
		pod := w.pod("skips")
		pod.Annotations = map[string]string{webhook.AnnotationSkipContainers: "app"}
		w.create(t, pod)
		reporttest.Headline(t, w.run(t, ofPod("skips")), reporttest.Want{Check: "injection", Class: "WebhookDoesNotInject"})
	})
	t.Run("no right to create pods", w.testWithoutRight)
	t.Run("refused by a quota", func(t *testing.T) {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}
		w.create(t, quota)
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
		if err := w.Status().Update(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
		var report *doctor.Report
		eventually(t, "the quota holds", func() bool { report = w.run(t); return report.Of("injection").Result != doctor.Pass })
		reporttest.Headline(t, report, reporttest.Want{Check: "injection", Result: doctor.Unknown, Says: "exceeded quota: none"})
		if err := w.Delete(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the quota is gone", func() bool { return w.run(t).Of("injection").Result == doctor.Pass })
	})
	t.Run("remedies", w.testRemedies)
	t.Run("a slow webhook", func(t *testing.T) {
		end := make(chan struct{})
		slow := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		t.Cleanup(slow.Close)
		t.Cleanup(func() { close(end) })
		w.hook.Webhooks[0].ClientConfig.URL, w.hook.Webhooks[0].TimeoutSeconds = new(slow.URL), new(int32(1))
		w.hook.Webhooks[0].ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: slow.Certificate().Raw})
		if err := w.Update(t.Context(), w.hook); err != nil {
			t.Fatal(err)
		}
		var report *doctor.Report
		eventually(t, "the API server asks the slow webhook", func() bool { report = w.run(t); return report.Of("injection").Result != doctor.Pass })
		reporttest.Headline(t, report, reporttest.Want{Check: "injection", Result: doctor.Unknown, Says: w.hook.Webhooks[0].Name})
	})
	t.Run("no endpoint", func(t *testing.T) {
		w.hook.Webhooks[0].ClientConfig.URL = nil
		w.hook.Webhooks[0].ClientConfig.Service = &admissionv1.ServiceReference{Namespace: w.namespace, Name: "webhook"}
		if err := w.Update(t.Context(), w.hook); err != nil {
			t.Fatal(err)
		}
		var report *doctor.Report
		eventually(t, "the API server asks the Service", func() bool { report = w.run(t); return report.Of("injection").Result != doctor.Pass })
		reporttest.Headline(t, report, reporttest.Want{Check: "injection", Class: "WebhookNotReady"})
	})
	t.Run("namespace without the label", func(t *testing.T) {
		w.label(t, map[string]any{"iam.aws.k8s.io/injection": nil})
		var report *doctor.Report
		eventually(t, "the API server knows", func() bool { report = w.run(t); return report.Of("injection").Class != "WebhookNotReady" })
		reporttest.Headline(t, report, reporttest.Want{Check: "injection", Class: "NamespaceNotLabelled"})
	})
}

func (w *kubeEnvironment) testWithoutRight(t *testing.T) {
	reader := connect(t, w.cluster.User(t, "reader", w.namespace,
		rbacv1.PolicyRule{APIGroups: []string{"iam.aws.k8s.io", ""}, Resources: []string{"iambindings", "serviceaccounts"}, Verbs: []string{"get", "list"}}))
	report := w.run(t, func(c *examine.Config) { c.Client = reader })
	reporttest.Headline(t, report, reporttest.Want{Check: "injection", Result: doctor.Unknown, Says: "cannot create resource"})
	if commands := report.Worst().Remedy.Commands; len(commands) != 1 || commands[0] != "wid doctor pod-identity --service-account "+w.namespace+"/"+account {
		t.Errorf("%q", commands)
	}
}

// testRemedies runs printed commands until the fault is gone.
func (w *kubeEnvironment) testRemedies(t *testing.T) {
	run := func(command string) {
		t.Helper()
		command = filepath.Join(kubetest.Assets(t), strings.Replace(command, "NAME", "second", 1))
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil { //nolint:gosec // a command of the doctor
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	mended := func(class string, change ...func(*examine.Config)) {
		t.Helper()
		change = append(change, func(c *examine.Config) { c.Flags = "--kubeconfig " + w.cluster.Kubeconfig(t) })
		var f *doctor.Finding
		is := func() bool { f = w.run(t, change...).Worst(); return f != nil && f.Class == class }
		eventually(t, class, is)
		for _, command := range f.Remedy.Commands {
			run(command)
		}
		eventually(t, class+" is gone", func() bool { return !is() })
	}
	w.label(t, map[string]any{"iam.aws.k8s.io/injection": nil})
	owned := w.pod("owned")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "1", Controller: new(true)}}
	eventually(t, "the webhook is not asked", func() bool {
		pod := w.pod("")
		return w.Create(t.Context(), pod, client.DryRunAll) == nil && len(pod.Spec.InitContainers) == 0
	})
	owned.Spec.NodeName = "" // else a kubelet has to confirm the deletion
	w.create(t, owned)
	mended("NamespaceNotLabelled")
	mended("PodNotInjected", ofPod("owned"))
	second := bindingOf("second", account)
	second.Namespace = w.namespace
	w.create(t, second)
	w.setAccepted(t, metav1.ConditionFalse, podidentity.ReasonConflict)
	f := w.run(t, func(c *examine.Config) { c.Flags = "--kubeconfig " + w.cluster.Kubeconfig(t) }).Worst()
	for _, command := range f.Remedy.Commands {
		run(command)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(second), second); f.Class != podidentity.ReasonConflict || !apierrors.IsNotFound(err) {
		t.Errorf("%v after %+v", err, f)
	}
	w.setAccepted(t, metav1.ConditionTrue, "Test") // as the server does then
}
