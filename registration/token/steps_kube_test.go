package token_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
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

// expectInfrastructure expects exactly the three objects, which belong to the
// add-on.
func (m *addOnMember) expectInfrastructure(t *testing.T, addOn string) {
	t.Helper()
	if got := m.infrastructureOf(addOn); !slices.Equal(got, infrastructure(m.Name, addOn)) {
		t.Errorf("there are %q", got)
	}
	owner := m.AddOn(addOn).GetUID()
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	for _, o := range []client.Object{role, binding} {
		regtest.Must(t, m.Admin.Get(t.Context(), client.ObjectKey{Namespace: m.Name, Name: addOn + "-token-role"}, o))
	}
	account := m.account(addOn)
	for _, o := range []client.Object{role, binding, account} {
		if owners := o.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != owner {
			t.Errorf("%T belongs to %+v", o, owners)
		}
	}
	if r := role.Rules; len(r) != 1 || !slices.Equal(r[0].Verbs, []string{"create"}) ||
		!slices.Equal(r[0].Resources, []string{"serviceaccounts/token"}) ||
		!slices.Equal(r[0].ResourceNames, []string{account.Name}) {
		t.Errorf("rules %+v", r)
	}
	if s := binding.Subjects; len(s) != 2 || s[0].Name != "system:open-cluster-management:"+m.Name ||
		s[1].Name != "open-cluster-management:"+m.Name {
		t.Errorf("subjects %+v", s)
	}
	want := fmt.Sprintf("ServiceAccount %s/%s (UID: %s) is ready", m.Name, account.Name, account.UID)
	if got := m.Condition(addOn, addon.ConditionTokenInfrastructureReady).Message; got != want {
		t.Errorf("message %q", got)
	}
}

func (m *addOnMember) expectStored(t *testing.T) {
	secret := m.secret("addon1")
	want := []string{"agent-name", "auth-type", "cluster-name", "expiration", "kubeconfig", "token", "uid"}
	if got := regtest.Keys(secret); !slices.Equal(got, want) {
		t.Errorf("keys %q", got)
	}
	if string(secret.Data["uid"]) != string(m.account("addon1").UID) || string(secret.Data["cluster-name"]) != m.Name ||
		!strings.Contains(string(secret.Data["kubeconfig"]), "tokenFile: token") {
		t.Errorf("UID %s, cluster %s", secret.Data["uid"], secret.Data["cluster-name"])
	}
	expiry, err := time.Parse(time.RFC3339, string(secret.Data["expiration"]))
	if left := time.Until(expiry); err != nil || left < 364*24*time.Hour || left > 366*24*time.Hour {
		t.Errorf("expires at %s, %v", secret.Data["expiration"], err)
	}
	m.UntilAddOn("addon1", "the condition is True", func() bool {
		return m.Says("addon1", "AddonTokenRefreshed") == "True/"+"AddonTokenRefreshed"
	})
	if c := m.Condition("addon1", "AddonTokenRefreshed"); !strings.Contains(c.Message,
		string(secret.Data["expiration"])) || strings.Contains(c.Message, string(secret.Data["token"])) {
		t.Errorf("message %q", c.Message)
	}
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
	regtest.Eventually(t, "nothing remains", func() bool {
		return len(m.infrastructureOf("addon1")) == 0 && m.secret("addon1").Name == ""
	})
	regtest.Eventually(t, "the token is refused", func() bool {
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
	for _, row := range []struct {
		requests            []kubetest.Request
		resource, namespace string
		want                []string
	}{
		{m.Managed.Audit(t, "system:serviceaccount:"+m.Namespace+":"+m.Account), "secrets", m.AddOnNamespace(),
			[]string{"create", "delete", "get", "list", "update", "watch"}},
		{m.Managed.Audit(t, "system:serviceaccount:"+m.Namespace+":"+m.Account), "leases", m.AddOnNamespace(),
			[]string{"get"}},
		// A watch begins with all add-ons. A hub before Kubernetes 1.32 needs
		// list, too.
		{m.Hub.Audit(t, m.User()), "managedclusteraddons", m.Name, []string{"get", "patch", "watch"}},
	} {
		used := map[string]bool{}
		for _, r := range row.requests {
			if r.Resource != row.resource || r.Namespace != row.namespace {
				continue
			}
			if used[r.Verb] = true; r.Code == http.StatusForbidden {
				t.Errorf("refused: %+v", r)
			}
		}
		if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, row.want) {
			t.Errorf("the agent used the verbs %q of %s, it has %q", got, row.resource, row.want)
		}
	}
}
