package token_test

import (
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// adminAccount makes a ServiceAccount of a cluster administrator.
func (k *kube) adminAccount(key client.ObjectKey) {
	k.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "admin-" + key.Namespace},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: key.Namespace, Name: key.Name}}}
	for _, o := range []client.Object{account, binding} {
		if err := k.Admin.Create(k.T.Context(), o); err != nil {
			k.T.Fatal(err)
		}
	}
}

// declareAccount declares a ServiceAccount as a hostile agent does.
func (a *testAgent) declareAccount(name string) {
	a.T.Helper()
	a.patch(a.get(), func(s *addon.Status) bool {
		s.Items[0] = ocm.Registration{Type: ocm.KubeClient, Driver: registration.AuthTypeToken, Subject: ocm.Subject{User: "system:serviceaccount:" + a.cluster + ":" + name}}
		return true
	})
}

func (a *testAgent) refused(reason string) bool {
	return a.condition(addon.ConditionTokenInfrastructureReady) == "False/"+reason
}

// An agent gets no token of a ServiceAccount that has the add-on's name and is not the hub's.
func TestAgentGetsNoTokenOfAnotherServiceAccount(t *testing.T) {
	k := newKube(t)
	expectNoToken := func(t *testing.T, a *testAgent, key client.ObjectKey) {
		t.Helper()
		if err := a.ask(key, authenticationv1.TokenRequestSpec{}); !apierrors.IsForbidden(err) {
			t.Errorf("the agent asks for a token of a cluster administrator: %v", err)
		}
		left := slices.DeleteFunc(k.left(a.cluster), func(s string) bool { return strings.HasPrefix(s, "ServiceAccount ") })
		if len(left) > 0 {
			t.Errorf("there are %q", left)
		}
		if k.uid(key.Namespace, key.Name) == "" {
			t.Error("the ServiceAccount is gone")
		}
	}
	for name, account := range map[string]string{"proposed": "taken-proposed-addon1-agent", "released": "addon1-agent"} {
		t.Run("that was there before, "+name+" name", func(t *testing.T) {
			a := k.join("taken-"+name, "addon1", token.Options{})
			key := client.ObjectKey{Namespace: a.cluster, Name: account}
			k.adminAccount(key)
			a.declareAccount(account)
			regtest.Eventually(t, "the hub refuses", func() bool { return a.refused("ObjectTaken") })
			expectNoToken(t, a, key)
			if writes := k.writes(); slices.ContainsFunc(writes, func(w string) bool {
				return strings.Contains(w, " "+a.cluster+"/") && strings.Contains(w, "token-role")
			}) {
				t.Errorf("for a moment it had a right: %q", writes)
			}
		})
	}
	t.Run("that replaced the hub's own while the hub was down", func(t *testing.T) {
		a := k.join("taken-later", "addon1", token.Options{})
		a.until("it has a token", a.refreshed)
		key := client.ObjectKey{Namespace: a.cluster, Name: "taken-later-addon1-agent"}
		k.stopHub()
		if err := k.Admin.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
			t.Fatal(err)
		}
		k.adminAccount(key)
		k.runHub(2)
		regtest.Eventually(t, "the hub refuses", func() bool { return a.refused("ObjectTaken") })
		expectNoToken(t, a, key)
	})
	t.Run("after the agent has changed the name", func(t *testing.T) {
		a := k.join("taken-changed", "addon1", token.Options{})
		a.until("it has a token", a.refreshed)
		key := client.ObjectKey{Namespace: a.cluster, Name: "addon1-agent"}
		k.adminAccount(key)
		a.declareAccount("addon1-agent")
		regtest.Eventually(t, "the hub refuses", func() bool { return a.refused("ObjectTaken") })
		expectNoToken(t, a, key)
	})
	t.Run("that the hub's cache does not show yet", func(t *testing.T) {
		a := k.join("taken-unseen", "addon1", token.Options{})
		k.stopHub()
		key := client.ObjectKey{Namespace: a.cluster, Name: "addon1-agent"}
		k.adminAccount(key)
		a.declareAccount("addon1-agent")
		own, err := client.NewWithWatch(k.config, client.Options{Scheme: scheme(t)})
		if err != nil {
			t.Fatal(err)
		}
		hub, err := token.NewHub(token.HubOptions{Client: withoutAccounts(own), Reader: own})
		if err == nil {
			_, err = hub.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a.get())})
		}
		if err != nil || !a.refused("ObjectTaken") {
			t.Errorf("condition %q, %v", a.condition(addon.ConditionTokenInfrastructureReady), err)
		}
		expectNoToken(t, a, key)
	})
}

// A RoleBinding never binds the cluster to a Role that is not the hub's.
func TestAgentGetsNoRightsOfAnotherRole(t *testing.T) {
	k := newKube(t)
	a := k.join("taken-role", "addon1", token.Options{})
	a.until("it has a token", a.refreshed)
	k.stopHub()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "taken-role", Name: "addon1-token-role"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}}
	if err := k.Admin.Delete(t.Context(), role.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := k.Admin.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	k.runHub(2)
	regtest.Eventually(t, "the hub refuses", func() bool { return a.refused("ObjectTaken") })
	if got := k.left("taken-role"); slices.Contains(got, "RoleBinding taken-role/addon1-token-role") || !slices.Contains(got, "Role taken-role/addon1-token-role") {
		t.Errorf("there are %q", got)
	}
}
