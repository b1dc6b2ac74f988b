package token_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// ocmObjects are the objects that a hub of Open Cluster Management creates for
// an add-on's tokens. They have no owner.
type ocmObjects struct {
	account *corev1.ServiceAccount
	role    *rbacv1.Role
	binding *rbacv1.RoleBinding
}

func newOCMObjects(cluster, addOn string) *ocmObjects {
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: cluster, Name: addOn + name, Labels: map[string]string{
			"addon.open-cluster-management.io/name": addOn, "addon.open-cluster-management.io/token-infrastructure": "true"}}
	}
	tokens := func(verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: names,
			Verbs: []string{verb}}
	}
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: name}
	}
	return &ocmObjects{
		account: &corev1.ServiceAccount{ObjectMeta: named("-agent")},
		role: &rbacv1.Role{ObjectMeta: named("-token-role"),
			Rules: []rbacv1.PolicyRule{tokens("create", addOn+"-agent"), tokens("subscribe")}},
		binding: &rbacv1.RoleBinding{ObjectMeta: named("-token-role"),
			Subjects: []rbacv1.Subject{group("system:open-cluster-management:" + cluster),
				group("open-cluster-management:" + cluster)},
			RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: addOn + "-token-role"}},
	}
}

// all returns the objects that are not nil.
func (o *ocmObjects) all() (all []client.Object) {
	if o.account != nil {
		all = append(all, o.account)
	}
	if o.role != nil {
		all = append(all, o.role)
	}
	if o.binding != nil {
		all = append(all, o.binding)
	}
	return all
}

// moved is an add-on that a hub of Open Cluster Management has registered. Its
// agent holds a token.
type moved struct {
	*testAgent
	*ocmObjects
	old *corev1.ServiceAccount
}

// registeredByOCM joins a cluster while no hub controller for tokens runs, and
// does what OCM's hub does for its add-on.
func (k *kube) registeredByOCM(cluster, name string) *moved {
	k.T.Helper()
	k.runHub(2)
	m := &moved{testAgent: k.join(cluster, name, token.Options{}), ocmObjects: newOCMObjects(cluster, name)}
	k.stopHub()
	for _, o := range m.all() {
		regtest.Must(k.T, k.Admin.Create(k.T.Context(), o))
	}
	m.patch(m.get(), func(s *addon.Status) bool {
		s.Items[0] = ocm.Registration{Type: ocm.KubeClient, Driver: registration.AuthTypeToken,
			Subject: ocm.Subject{User: "system:serviceaccount:" + cluster + ":" + name + "-agent"}}
		return true
	})
	m.ready(string(m.account.UID))
	return m
}

// ready writes the condition of OCM's hub.
func (m *moved) ready(uid string) {
	m.T.Helper()
	m.patch(m.get(), func(s *addon.Status) bool {
		return meta.SetStatusCondition(&s.Conditions,
			metav1.Condition{Type: "TokenInfrastructureReady", Status: "True", Reason: "TokenInfrastructureReady",
				Message: "ServiceAccount " + m.cluster + "/" + m.addOn + "-agent (UID: " + uid + ") is ready"})
	})
}

// inUse lets the agent get its token by the rights that OCM's hub gave it.
func (m *moved) inUse() *moved {
	m.T.Helper()
	m.until("the agent has a token of OCM's ServiceAccount", func() bool {
		return m.condition("TokenRefreshed") == "True/AddonTokenRefreshed"
	})
	return m
}

// review returns whether the API server takes the stored token.
func (m *moved) review() bool {
	m.T.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(m.stored["token"])}}
	regtest.Must(m.T, m.Admin.Create(m.T.Context(), review))
	return review.Status.Authenticated && review.Status.User.Username == "system:serviceaccount:"+m.cluster+":"+
		m.addOn+"-agent"
}

// adopted reports whether the three objects have the hub's labels and the
// add-on as owner.
func (m *moved) adopted() bool {
	m.T.Helper()
	owner := []metav1.OwnerReference{{APIVersion: addon.GroupVersion.String(), Kind: "ManagedClusterAddOn", Name: m.addOn,
		UID: m.get().UID}}
	for _, o := range m.all() {
		regtest.Must(m.T, client.IgnoreNotFound(m.Admin.Get(m.T.Context(), client.ObjectKeyFromObject(o), o)))
		if !slices.Equal(o.GetOwnerReferences(), owner) || o.GetLabels()[addon.NameLabel] != m.addOn ||
			o.GetLabels()[ocm.ClusterNameLabel] != m.cluster {
			return false
		}
	}
	return true
}

// The add-ons of a fleet keep their tokens when our hub replaces one of Open
// Cluster Management.
func TestHubAdoptsTheTokensOfOpenClusterManagement(t *testing.T) {
	k := newHub(t)
	denied, deleted := k.registeredByOCM("moved-denied", "addon1").inUse(),
		k.registeredByOCM("moved-deleted", "addon1").inUse()
	for _, m := range []*moved{denied, deleted} {
		if !m.review() {
			t.Fatal("OCM's token does not work")
		}
	}
	uid, tokenBefore := denied.account.UID, string(denied.stored["token"])
	left := k.registeredByOCM("moved-left", "addon1").inUse()
	regtest.Must(t, k.Admin.Delete(t.Context(), addOn("moved-left", "addon1"), client.Preconditions{}))
	k.runHub(2)
	t.Run("of an add-on that was deleted meanwhile nothing stays", func(t *testing.T) { left.expectRemoved(t) })
	t.Run("adoption", func(t *testing.T) {
		for _, m := range []*moved{denied, deleted} {
			kubetest.Eventually(t, "the hub adopts the objects", m.adopted)
		}
		if want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
			ResourceNames: []string{"addon1-agent"}, Verbs: []string{"create"}}}; len(denied.role.Rules) != 1 ||
			!slices.Equal(denied.role.Rules[0].ResourceNames, want[0].ResourceNames) ||
			!slices.Equal(denied.role.Rules[0].Verbs, want[0].Verbs) {
			t.Errorf("rules %+v", denied.role.Rules)
		}
		if denied.account.UID != uid || !denied.review() {
			t.Errorf("UID %q instead of %q, the token works: %t", denied.account.UID, uid, denied.review())
		}
		if c := meta.FindStatusCondition(denied.get().Status.Conditions, "TokenInfrastructureReady"); c == nil ||
			c.Status != "True" || !strings.Contains(c.Message, string(uid)) {
			t.Errorf("condition %+v", c)
		}
	})
	t.Run("the agent refreshes without another declaration", func(t *testing.T) {
		before := denied.get().Status.Registrations
		denied.ahead = 300 * 24 * time.Hour
		kubetest.Eventually(t, "the agent has another token", func() bool {
			denied.reconcile()
			if denied.last.Declare != nil {
				t.Fatalf("it declares %+v", denied.last.Declare)
			}
			return string(denied.stored["token"]) != tokenBefore
		})
		if after := denied.get().Status.Registrations; !denied.review() ||
			!slices.EqualFunc(before, after, func(a, b addon.RegistrationConfig) bool {
				return a.KubeClient.Subject.User == b.KubeClient.Subject.User
			}) {
			t.Errorf("items %+v instead of %+v, the token works: %t", after, before, denied.review())
		}
	})
	t.Run("a hub that starts again writes nothing", func(t *testing.T) {
		k.stopHub()
		before := len(k.writes())
		k.runHub(2)
		k.join("moved-more", "addon1", token.Options{}).until("the hub works", func() bool {
			return len(k.left("moved-more")) == 3
		})
		if more := k.writes()[before:]; slices.ContainsFunc(more, func(w string) bool {
			return strings.Contains(w, "moved-denied/") || strings.Contains(w, "moved-deleted/")
		}) {
			t.Errorf("it writes %q", more)
		}
	})
	k.SetAccepted("moved-denied", false)
	regtest.Must(t, k.Admin.Delete(t.Context(), addOn("moved-deleted", "addon1"), client.Preconditions{}))
	for name, m := range map[string]*moved{"denial removes all": denied, "deletion of the add-on removes all": deleted} {
		t.Run(name, func(t *testing.T) { m.expectRemoved(t) })
	}
}

func (m *moved) expectRemoved(t *testing.T) {
	t.Helper()
	kubetest.Eventually(t, "nothing is left", func() bool { return len(m.left(m.cluster)) == 0 })
	kubetest.Eventually(t, "the token is refused", func() bool { return !m.review() })
}
