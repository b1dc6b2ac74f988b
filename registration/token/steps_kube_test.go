package token_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// The eight steps of the proposal's registration flow, in this order, each with
// what it must not do before its turn.
func TestAddOnRegistrationFlow(t *testing.T) {
	w := newAddOnEnvironment(t)
	s := w.runSigner()
	m := w.join("flow")
	w.stopTokens()
	const user = "system:serviceaccount:flow:flow-addon1-agent"
	w.Step("Step1 the add-on is created", func(*testing.T) { m.NewAddOn("addon1") })
	w.Step("Step2 its hub controller adds empty items", func(t *testing.T) {
		m.PatchAddOn("addon1", func(s *addon.Status) { s.Items = []ocm.Registration{kubeClientItem, signerItem} })
		if item := m.Items("addon1")[0]; item.Driver != "" || item.Subject.User != "" {
			t.Errorf("item %+v", item)
		}
	})
	m.run(newToken(t, 0)) // for all further steps
	w.Step("Step3 the agent creates a driver for each item", func(*testing.T) {
		m.UntilAddOn("addon1", "both drivers work", func() bool {
			return m.requests("addon1") == 1 && m.Items("addon1")[0].Driver != ""
		})
	})
	w.Step("Step4 the driver declares itself and waits", func(t *testing.T) {
		m.UntilAddOn("addon1", "it waits", func() bool {
			return m.Says("addon1", "AddonTokenRefreshed") == "False/"+"TokenInfrastructureNotReady"
		})
		if item := m.Items("addon1")[0]; item.Driver != registration.AuthTypeToken || item.Subject.User != user ||
			len(item.Subject.Groups) > 0 {
			t.Errorf("item %+v", item)
		}
		if m.ReconcileAddOn("addon1"); m.tokenRequests("addon1") > 0 || len(m.secret("addon1").Data["token"]) > 0 {
			t.Error("it requests a token before the hub is ready")
		}
	})
	w.Step("Step5 the add-on's hub controller binds permissions", func(*testing.T) { m.Bind("addon1", user) })
	w.Step("Step6 the add-on manager creates the infrastructure", func(t *testing.T) {
		if got := m.infrastructureOf("addon1"); len(got) > 0 {
			t.Errorf("before its turn there are %q", got)
		}
		w.runTokens()
		m.UntilAddOn("addon1", "the hub is ready", func() bool {
			return m.Says("addon1", addon.ConditionTokenInfrastructureReady) == "True/"+ocm.ReasonTokensReady
		})
		m.expectInfrastructure(t, "addon1")
	})
	w.Step("Step7 the driver requests its token with the cluster's credential", func(t *testing.T) {
		m.Registered("addon1", registration.AuthTypeToken)
		if n := m.tokenRequests("addon1"); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
	w.Step("Step8 the agent stores the token and says so", m.expectStored)
	w.Step("the token works for the add-on's own RBAC and nothing else", func(*testing.T) {
		m.NewAddOn("addon2", kubeClientItem)
		m.Registered("addon2", registration.AuthTypeToken)
		m.ExpectOnlyOwnRights("addon2")
	})
	w.Step("the custom signer beside it", func(*testing.T) { m.expectSigned(s, "addon1") })
}

// expectInfrastructure expects exactly the three objects. TestHubProvides has
// what is in them.
func (m *addOnMember) expectInfrastructure(t *testing.T, addOn string) {
	t.Helper()
	if got, want := m.infrastructureOf(addOn), infrastructure(m.Name, addOn); !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

func (m *addOnMember) expectStored(t *testing.T) {
	m.expectKeys(t, "addon1", registration.AuthTypeToken)
	secret := m.secret("addon1")
	if got, want := string(secret.Data["uid"]), string(m.account("addon1").UID); got != want {
		t.Errorf("the token is of the UID %q, want %q", got, want)
	}
	expiry, err := time.Parse(time.RFC3339, string(secret.Data["expiration"]))
	if left := time.Until(expiry); err != nil || left < 364*24*time.Hour || left > 366*24*time.Hour {
		t.Errorf("the token expires at %s, %v, want a year", secret.Data["expiration"], err)
	}
	m.UntilAddOn("addon1", "the condition is True", func() bool {
		return m.Says("addon1", "AddonTokenRefreshed") == "True/"+"AddonTokenRefreshed"
	})
	if err := m.AddOnClient("addon1").List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(m.Name)); err != nil {
		t.Errorf("what step 5 has bound: %v", err)
	}
}

// Add-ons that are deleted while no controller of the hub runs leave nothing,
// on either cluster.
func TestAddOnDeletedWhileTheHubManagerIsDown(t *testing.T) {
	w := newAddOnEnvironment(t)
	m := w.join("gone")
	m.run(newToken(t, 0))
	m.NewAddOn("addon1", kubeClientItem)
	m.Registered("addon1", registration.AuthTypeToken)
	old := m.AddOnClient("addon1")
	w.stopTokens()
	w.stopApprover()
	w.stopClusters()
	m.DeleteAddOn("addon1")
	kubetest.Eventually(t, "nothing remains", func() bool {
		return len(m.infrastructureOf("addon1")) == 0 && m.secret("addon1").Name == ""
	})
	kubetest.Eventually(t, "the token is refused", func() bool {
		return old.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("gone")) != nil
	})
	w.runTokens()
	m.NewAddOn("addon2", kubeClientItem)
	m.Registered("addon2", registration.AuthTypeToken) // the hub has looked at all
	if got := m.infrastructureOf("addon1"); len(got) > 0 {
		t.Errorf("the hub made %q", got)
	}
	m.stop() // the audit log has watches that have ended
	m.expectAllRightsUsed(t)
}

// expectAllRightsUsed expects that the agent has used each right of its
// manifests to add-ons, and asked for no other.
func (m *addOnMember) expectAllRightsUsed(t *testing.T) {
	t.Helper()
	account := "system:serviceaccount:" + m.Namespace + ":" + m.Account
	for _, row := range []struct {
		cluster                   *kubetest.Cluster
		user, resource, namespace string
		want                      []string
	}{
		{m.Managed, account, "secrets", m.AddOnNamespace(), []string{"create", "delete", "get", "list", "update", "watch"}},
		{m.Managed, account, "leases", m.AddOnNamespace(), []string{"get"}},
		// A watch begins with all add-ons. A hub before Kubernetes 1.32 needs
		// list, too.
		{m.Hub, m.User(), "managedclusteraddons", m.Name, []string{"get", "patch", "watch"}},
	} {
		// the log has a watch when it has ended
		what := fmt.Sprintf("the agent has used exactly the verbs %q of %s", row.want, row.resource)
		kubetest.Eventually(t, what, func() bool {
			used := map[string]bool{}
			for _, r := range row.cluster.Audit(t, row.user) {
				if r.Resource != row.resource || r.Namespace != row.namespace {
					continue
				}
				if used[r.Verb] = true; r.Code == http.StatusForbidden {
					t.Fatalf("refused: %+v", r)
				}
			}
			return slices.Equal(slices.Sorted(maps.Keys(used)), row.want)
		})
	}
}
