package server_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

func TestNotBound(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		a := w.ask("a", "app", "worker")
		if a.status != http.StatusForbidden || a.body["Code"] != podidentity.ReasonNotBound ||
			!strings.Contains(a.body["Message"], `ServiceAccount "app"`) {
			t.Errorf("got %v %v, want a 403 NotBound that names the ServiceAccount", a, a.body)
		}
		if !w.events.find("Pod worker", "Warning NotBound", `"app"`) {
			t.Errorf("got the Events %q, want one on the pod", w.events.all())
		}
	}, named(bindingOf("a", "other", roles+"other"), "other"))
}

func TestTwoExternalIDsNeverShare(t *testing.T) {
	b := named(bindingOf("a", "app", roles+"app"), "app")
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trustFor(roles+"app", "one")
		for _, step := range []struct {
			externalID string
			want       int
		}{{"one", http.StatusOK}, {"two", http.StatusForbidden}, {"one", http.StatusOK}} {
			b.Spec.AWS.ExternalID = step.externalID
			if err := w.kube.Update(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if a := w.ask("a", "app", "worker"); a.status != step.want {
				t.Errorf("external ID %q: got %v %v, want %d", step.externalID, a, a.body, step.want)
			}
		}
	}, b)
}

// A rule that is taken away counts for credentials in the cache too. TestAllows
// has the patterns.
func TestAllowListIsCheckedAtEveryIssue(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trust(roles + "app")
		list := &v1alpha1.IAMRoleAllowList{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName}}
		check := func(when, want string, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if a := w.ask("a", "app", "worker"); (a.status == http.StatusOK) != (want == "") || a.body["Code"] != want {
				t.Errorf("%s: got %v %v, want the code %q", when, a, a.body, want)
			}
		}
		allow := func(namespace, role string) error {
			if err := w.kube.Get(t.Context(), client.ObjectKeyFromObject(list), list); err != nil {
				return err
			}
			list.Spec.Rules = []v1alpha1.AllowRule{{Namespaces: []string{namespace}, Roles: []string{role}}}
			return w.kube.Update(t.Context(), list)
		}
		check("the role", "", allow("a", roles+"app"))
		check("another role", podidentity.ReasonRoleNotAllowed, allow("a", roles+"ap"))
		check("the role again", "", allow("a", roles+"app"))
		check("another namespace", podidentity.ReasonRoleNotAllowed, allow("b", "*"))
		check("no list", podidentity.ReasonRoleNotAllowed, w.kube.Delete(t.Context(), list))
	}, named(bindingOf("a", "app", roles+"app"), "app"))
}
