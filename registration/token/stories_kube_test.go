package token_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// infrastructure is what a provided add-on has.
func infrastructure(cluster, name string) []string {
	return []string{"Role " + cluster + "/" + name + "-token-role", "RoleBinding " + cluster + "/" + name + "-token-role",
		"ServiceAccount " + cluster + "/" + cluster + "-" + name + "-agent"}
}

// left returns what exists in the namespace of a cluster beside what each cluster has.
func (k *kube) left(cluster string) []string {
	k.t.Helper()
	return slices.DeleteFunc(there(k.t, k.admin, cluster), func(s string) bool {
		return strings.Contains(s, "open-cluster-management:managedcluster:") || strings.HasSuffix(s, "/default")
	})
}

// Steps 4, 6, 7 and 8 of the proposal. Step 5, the binding of roles, belongs to the add-on's own controller: the test does it.
func TestAddOnGetsItsToken(t *testing.T) {
	k := newKube(t)
	a := k.join("steps", "addon1", token.Options{})
	const user = "system:serviceaccount:steps:steps-addon1-agent"
	a.pass()
	if item := addon.StatusOf(a.get()).Items[0]; item.Driver != "token" || item.Subject.User != user || len(item.Subject.Groups) > 0 {
		t.Fatalf("step 4: declared %+v", item)
	}
	eventually(t, "step 6: the hub provides", func() bool {
		return a.condition(addon.ConditionTokenInfrastructureReady) == "True/TokenInfrastructureReady"
	})
	if got := k.left("steps"); !slices.Equal(got, infrastructure("steps", "addon1")) {
		t.Errorf("step 6: there are %q", got)
	}
	a.until("step 7: the driver has a token", func() bool { return len(a.stored["token"]) > 0 })
	if !a.refreshed() || string(a.stored["uid"]) != k.uid("steps", "steps-addon1-agent") {
		t.Errorf("step 8: condition %q, UID %s", a.condition("AddonTokenRefreshed"), a.stored["uid"])
	}
	expiry, err := time.Parse(time.RFC3339, string(a.stored["expiration"]))
	if left := time.Until(expiry); err != nil || left < 364*24*time.Hour || left > 366*24*time.Hour {
		t.Errorf("step 8: expires at %s, %v", a.stored["expiration"], err)
	}
	before := a.get().ResourceVersion
	for range 5 {
		a.pass()
	}
	if a.get().ResourceVersion != before {
		t.Error("the steady state writes")
	}
	t.Run("it works for its own RBAC and nothing else", a.expectOnlyOwnRights)
	t.Run("a neighbour gets no token", func(t *testing.T) {
		k.accept("neighbour")
		neighbour := &testAgent{kube: k, own: k.clientOf("neighbour")}
		own := client.ObjectKey{Namespace: "steps", Name: "steps-addon1-agent"}
		if err := neighbour.ask(own, authenticationv1.TokenRequestSpec{}); !apierrors.IsForbidden(err) {
			t.Errorf("error %v", err)
		}
		if err := a.ask(own, authenticationv1.TokenRequestSpec{}); err != nil {
			t.Errorf("the cluster itself: %v", err)
		}
		if err := a.ask(client.ObjectKey{Namespace: "steps", Name: "default"}, authenticationv1.TokenRequestSpec{}); !apierrors.IsForbidden(err) {
			t.Errorf("another ServiceAccount: %v", err)
		}
	})
}

func (k *kube) uid(namespace, account string) string {
	k.t.Helper()
	sa := &corev1.ServiceAccount{}
	if err := k.admin.Get(k.t.Context(), client.ObjectKey{Namespace: namespace, Name: account}, sa); client.IgnoreNotFound(err) != nil {
		k.t.Fatal(err)
	}
	return string(sa.UID)
}

func (a *testAgent) expectOnlyOwnRights(t *testing.T) {
	k := a.kube
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: a.cluster, Name: "addon"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "addon"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: a.get().Status.Registrations[0].KubeClient.Subject.User}}}
	c := a.addOnClient()
	if err := c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(a.cluster)); !apierrors.IsForbidden(err) {
		t.Errorf("before it is bound: %v", err)
	}
	for _, o := range []client.Object{role, binding} {
		if err := k.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the add-on uses its right", func() bool {
		return c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(a.cluster)) == nil
	})
	for what, err := range map[string]error{
		"configmaps elsewhere": c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default")),
		"secrets":              c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(a.cluster)),
		"add-ons":              c.List(t.Context(), &addon.ManagedClusterAddOnList{}, client.InNamespace(a.cluster)),
		"its own tokens": (&testAgent{kube: k, own: c}).ask(client.ObjectKey{Namespace: a.cluster, Name: a.cluster + "-" + a.addOn + "-agent"},
			authenticationv1.TokenRequestSpec{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A ServiceAccount that was deleted comes back with another UID, and the agent follows.
func TestRecreatedServiceAccount(t *testing.T) {
	k := newKube(t)
	a := k.join("recreated", "addon1", token.Options{ExpirationSeconds: 600})
	a.until("it has a token", a.refreshed)
	first, old := k.uid("recreated", "recreated-addon1-agent"), a.addOnClient()
	if err := k.admin.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "recreated", Name: "recreated-addon1-agent"}}); err != nil {
		t.Fatal(err)
	}
	a.until("it has another token", func() bool { return string(a.stored["uid"]) != first && a.refreshed() })
	if got := k.uid("recreated", "recreated-addon1-agent"); string(a.stored["uid"]) != got {
		t.Errorf("UID %s instead of %s", a.stored["uid"], got)
	}
	eventually(t, "the old token is refused", func() bool {
		return apierrors.IsUnauthorized(old.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("recreated")))
	})
	t.Run("the UID is a precondition", func(t *testing.T) {
		request := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: "0f3e7c1a-22b8-4d37-9a55-6f2f6e0c1a77"}}
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "recreated", Name: "recreated-addon1-agent"}}
		if err := a.own.SubResource("token").Create(t.Context(), sa, request); !apierrors.IsConflict(err) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the refresh of a 600 s token", func(t *testing.T) {
		before := string(a.stored["token"])
		if left := time.Until(a.last.At); left > 480*time.Second || left < 440*time.Second {
			t.Errorf("it looks again after %s", left)
		}
		a.ahead = 481 * time.Second
		eventually(t, "a second has passed", func() bool { a.pass(); return string(a.stored["token"]) != before })
	})
}

// Switching away leaves the token until the agent withdraws, and nothing afterwards.
func TestSwitchAway(t *testing.T) {
	k := newKube(t)
	a := k.join("switch", "addon1", token.Options{})
	a.until("it has a token", a.refreshed)
	old := a.addOnClient()
	a.patch(a.get(), func(s *addon.Status) bool { s.Items[0].Driver = registration.AuthTypeCSR; return true })
	k.accept("switch-other") // the hub has had time
	if got := k.left("switch"); !slices.Equal(got, infrastructure("switch", "addon1")) {
		t.Errorf("there are %q", got)
	}
	a.patch(a.get(), func(s *addon.Status) bool { return meta.RemoveStatusCondition(&s.Conditions, "AddonTokenRefreshed") })
	eventually(t, "the hub tears down", func() bool {
		return len(k.left("switch")) == 0 && a.condition(addon.ConditionTokenInfrastructureReady) == ""
	})
	eventually(t, "the token is refused", func() bool {
		return apierrors.IsUnauthorized(old.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("switch")))
	})
	t.Run("and back", func(*testing.T) {
		a.stored, a.state = nil, nil
		a.until("it has a token", a.refreshed)
	})
}

// A denied cluster loses the tokens of its add-ons.
func TestDeniedCluster(t *testing.T) {
	k := newKube(t)
	a := k.join("denied", "addon1", token.Options{})
	a.until("it has a token", a.refreshed)
	deny := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hubAcceptsClient":false}}`))
	if err := k.admin.Patch(t.Context(), managedCluster("denied", true), deny); err != nil {
		t.Fatal(err)
	}
	old := a.addOnClient()
	eventually(t, "the token is refused", func() bool {
		return apierrors.IsUnauthorized(old.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("denied"))) && len(k.left("denied")) == 0
	})
}

// The garbage collector removes all that an add-on had, although no controller of the hub runs.
func TestDeletedWhileTheHubIsDown(t *testing.T) {
	k := newKube(t)
	a := k.join("garbage", "addon1", token.Options{})
	a.until("it has a token", a.refreshed)
	k.stopHub()
	if err := k.admin.Delete(t.Context(), addOn("garbage", "addon1"), client.Preconditions{}); err != nil {
		t.Fatal(err)
	}
	if got := k.left("garbage"); len(got) != 3 {
		t.Errorf("there are %q", got)
	}
	k.hub.ControllerManager(t, "garbage-collector-controller")
	eventually(t, "nothing is left", func() bool { return len(k.left("garbage")) == 0 })
}

// The agent of a cluster declares a ServiceAccount of another cluster.
func TestForeignSubject(t *testing.T) {
	k := newKube(t)
	k.accept("victim")
	a := k.join("thief", "addon1", token.Options{})
	for _, user := range []string{"system:serviceaccount:victim:victim-addon1-agent", "system:serviceaccount:kube-system:addon1-agent"} {
		a.patch(a.get(), func(s *addon.Status) bool {
			s.Items[0] = ocm.Registration{Type: ocm.KubeClient, Driver: registration.AuthTypeToken, Subject: ocm.Subject{User: user}}
			return true
		})
		eventually(t, "the hub refuses "+user, func() bool {
			c := meta.FindStatusCondition(a.get().Status.Conditions, addon.ConditionTokenInfrastructureReady)
			return c != nil && c.Reason == "InvalidSubject" && strings.Contains(c.Message, user)
		})
	}
	if got := append(k.left("thief"), k.left("victim")...); len(got) > 0 {
		t.Errorf("there are %q", got)
	}
}

// The policy caps lifetimes, and restricts audiences if the ConfigMap lists some.
func TestCap(t *testing.T) {
	k := newKube(t)
	a := k.join("cap", "addon1", token.Options{ExpirationSeconds: 31_536_001})
	a.until("the agent says so", func() bool { return a.condition("AddonTokenRefreshed") == "False/TokenRequestInvalid" })
	c := meta.FindStatusCondition(a.get().Status.Conditions, "AddonTokenRefreshed")
	if !strings.Contains(c.Message, "31536000 seconds") || a.stored != nil {
		t.Errorf("message %q", c.Message)
	}
	own := client.ObjectKey{Namespace: "cap", Name: "cap-addon1-agent"}
	t.Run("exactly the cap", func(t *testing.T) {
		seconds := int64(31_536_000)
		if err := a.ask(own, authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}); err != nil {
			t.Error(err)
		}
	})
	configure := func(t *testing.T, data string) {
		t.Helper()
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management-hub", Name: "addon-tokens"}}
		if err := k.admin.Patch(t.Context(), config, client.RawPatch("application/merge-patch+json", []byte(data))); err != nil {
			t.Fatal(err)
		}
	}
	foreign := authenticationv1.TokenRequestSpec{Audiences: []string{"sts.amazonaws.com"}}
	t.Run("any audience", func(t *testing.T) {
		if err := a.ask(own, foreign); err != nil {
			t.Error(err)
		}
	})
	t.Run("listed audiences", func(t *testing.T) {
		configure(t, fmt.Sprintf(`{"data":{"audiences":"vault,%s"}}`, k.hub.IssuerURL()))
		defer configure(t, `{"data":{"audiences":""}}`)
		eventually(t, "the policy knows", func() bool { return apierrors.IsInvalid(a.ask(own, foreign)) })
		if err := a.ask(own, authenticationv1.TokenRequestSpec{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("another cap", func(t *testing.T) {
		configure(t, `{"data":{"maxExpirationSeconds":"31536001"}}`)
		defer configure(t, `{"data":{"maxExpirationSeconds":"31536000"}}`)
		a.until("the agent has its token", a.refreshed)
	})
}
