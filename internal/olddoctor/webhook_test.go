package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// eksWebhook is as the clouds' installations have it, changed.
func eksWebhook(name, webhook string, change func(c *admissionregistrationv1.MutatingWebhookConfiguration)) *unstructured.Unstructured {
	ignore := admissionregistrationv1.Ignore
	c := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-24 * time.Hour))},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: webhook, FailurePolicy: &ignore, NamespaceSelector: &metav1.LabelSelector{},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte("x"), Service: &admissionregistrationv1.ServiceReference{Name: "svc"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}}}
	if change != nil {
		change(c)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// withWebhooks is a pod that no webhook has changed, and what a caller sees of webhooks.
func withWebhooks(err error, configurations ...*unstructured.Unstructured) func(w *world) {
	return withPod(func(w *world, pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = nil
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-a", Labels: map[string]string{"kubernetes.io/metadata.name": "tenant-a"}}}
		base := asUser(w.issuer, w.issuer.Client(w.account, w.pod, namespace), w.user)
		w.config.RESTConfig = w.api()
		w.config.Client = interceptor.NewClient(base, interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				items, ok := list.(*unstructured.UnstructuredList)
				if !ok || items.GetKind() != "MutatingWebhookConfigurationList" {
					return errors.New("another list")
				}
				for _, c := range configurations {
					items.Items = append(items.Items, *c)
				}
				return err
			}})
	})
}

// Why a webhook has not changed a pod; and what cannot be seen is no cause.
func TestWebhooks(t *testing.T) {
	change := func(change func(w *admissionregistrationv1.MutatingWebhook)) *unstructured.Unstructured {
		return eksWebhook("pod-identity-webhook", "iam-for-pods.amazonaws.com", func(c *admissionregistrationv1.MutatingWebhookConfiguration) { change(&c.Webhooks[0]) })
	}
	exists := func(key string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}}
	}
	azure := eksWebhook("azure-wi-webhook-mutating-webhook-configuration", "mutation.azure-workload-identity.io", nil)
	for name, tt := range map[string]struct {
		provider     string
		webhooks     []*unstructured.Unstructured
		err          error
		says, remedy string
	}{
		"none":                {"aws", nil, nil, "there is none in this cluster", "amazon-eks-pod-identity-webhook"},
		"none of the cloud's": {"aws", []*unstructured.Unstructured{azure}, nil, "there is none in this cluster", "install the webhook"},
		"may not be listed":   {"aws", nil, apierrors.NewForbidden(corev1.Resource("x"), "", nil), "AWS_WEB_IDENTITY_TOKEN_FILE is not in its environment", "install the webhook"},
		"excluded by the namespace": {"aws", []*unstructured.Unstructured{change(func(w *admissionregistrationv1.MutatingWebhook) { w.NamespaceSelector = exists("inject") })}, nil,
			"because of its namespaceSelector", "kubectl edit mutatingwebhookconfiguration pod-identity-webhook"},
		"excluded by the pod": {"aws", []*unstructured.Unstructured{change(func(w *admissionregistrationv1.MutatingWebhook) { w.ObjectSelector = exists("inject") })}, nil,
			"because of its objectSelector", "label what the selector wants"},
		"not for pods":   {"aws", []*unstructured.Unstructured{change(func(w *admissionregistrationv1.MutatingWebhook) { w.Rules[0].Resources = []string{"services"} })}, nil, "because of its rules", "kubectl edit"},
		"no caBundle":    {"aws", []*unstructured.Unstructured{change(func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = nil })}, nil, "its caBundle is empty", "certificate"},
		"did not answer": {"aws", []*unstructured.Unstructured{change(func(*admissionregistrationv1.MutatingWebhook) {})}, nil, "though it is there", "recreate the pod from its manifest"},
		"installed later": {"aws", []*unstructured.Unstructured{eksWebhook("pod-identity-webhook", "x", func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Minute))
		})}, nil, "before the webhook was installed", "recreate the pod from its manifest"},
		"one excludes, the other does not": {"aws", []*unstructured.Unstructured{change(func(w *admissionregistrationv1.MutatingWebhook) { w.ObjectSelector = exists("inject") }),
			change(func(*admissionregistrationv1.MutatingWebhook) {})}, nil, "though it is there", "recreate the pod from its manifest"},
		"azure, did not answer": {"azure", []*unstructured.Unstructured{azure}, nil, "though it is there", "recreate the pod from its manifest"},
		"azure, none":           {"azure", nil, nil, "there is none in this cluster", "az aks update"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tt.provider)
			withWebhooks(tt.err, tt.webhooks...)(w)
			report := w.run()
			f := report.Worst()
			if f == nil || f.ID != "pod" || f.Result != doctor.Fail || !strings.Contains(f.Message, tt.says) || !strings.Contains(f.Remedy, tt.remedy) {
				t.Errorf("%+v:\n%s", f, report)
			}
			pasteable(t, report.Of("pod"))
			if strings.Contains(name, "did not answer") && !strings.Contains(strings.Join(f.Causes, " "), "failurePolicy Ignore") {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A pod that has its identity needs no webhook that anybody sees: on managed control planes nobody does.
func TestInjectedWithoutVisibleWebhook(t *testing.T) {
	for _, provider := range []string{"aws", "azure"} {
		w := newWorld(t, provider)
		withPod(func(*world, *corev1.Pod) {})(w)
		if f := w.run().Of("pod"); f.Result != doctor.Pass {
			t.Errorf("%s: %+v", provider, f)
		}
	}
}

// On EKS a webhook that nobody sees is no reason to install one.
func TestManagedWebhook(t *testing.T) {
	issuer, err := authtest.NewIssuer(authtest.IssuerConfig{URL: "https://oidc.eks.eu-central-1.amazonaws.com/id/ABC"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "aws")
	w.use(issuer)
	withWebhooks(nil)(w)
	if f := w.run().Of("pod"); f.Class != "A14" || strings.Contains(f.Message+f.Remedy, "install") || strings.Contains(f.Message, "none") {
		t.Errorf("%+v", f)
	}
}
