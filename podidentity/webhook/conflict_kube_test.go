package webhook_test

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// The user who writes a second IAMBinding of a ServiceAccount gets a warning.
func TestSecondBindingIsAWarning(t *testing.T) {
	w := newEnvironment(t, kubetest.Start(t))
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: w.Namespace + "-0"}, hook); err != nil {
		t.Fatal(err)
	}
	rule := *hook.Webhooks[0].Rules[0].DeepCopy()
	rule.APIGroups, rule.APIVersions, rule.Resources = []string{"iam.aws.k8s.io"}, []string{"v1alpha1"},
		[]string{"iambindings"}
	hook.Webhooks[0].Rules = append(hook.Webhooks[0].Rules, rule)
	if err := w.Update(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	first := bindingOf(w.Namespace, "app")
	w.create(t, first)
	second := bindingOf(w.Namespace, "app")
	var warnings []string
	kubetest.Eventually(t, "the API server asks the webhook", func() bool {
		w.create(t, second.DeepCopy(), client.DryRunAll)
		warnings = w.warned.take()
		return len(warnings) > 0
	})
	if len(warnings) != 1 || !strings.Contains(warnings[0], `"`+first.Name+`"`) ||
		!strings.Contains(warnings[0], `"app"`) {
		t.Errorf("warnings %q", warnings)
	}
	other := bindingOf(w.Namespace, "other")
	w.create(t, other)
	first.Labels = map[string]string{"a": "b"}
	if err := w.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if got := w.warned.take(); len(got) > 0 {
		t.Errorf("without a conflict: warnings %q", got)
	}
	other.Spec.ServiceAccountRef.Name = "app"
	if err := w.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := w.warned.take(); len(got) != 1 {
		t.Errorf("an update that conflicts: warnings %q", got)
	}
}
