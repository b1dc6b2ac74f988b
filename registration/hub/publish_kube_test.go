package hub_test

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// shows returns what readers learn of a cluster, and whether there is a
// ClusterRole.
func (k *hubKube) shows(t *testing.T, name string) (s registration.State, role *rbacv1.ClusterRole) {
	t.Helper()
	role = roleFor(name)
	regtest.Must(t, client.IgnoreNotFound(k.admin.Get(t.Context(), client.ObjectKeyFromObject(role), role)))
	return registration.StateOf(k.get(t, name), role, registration.Claim{}), role
}

func (k *hubKube) awaitClaim(t *testing.T, name, claim string) {
	t.Helper()
	regtest.Eventually(t, "cluster "+name+" shows "+claim, func() bool {
		s, role := k.shows(t, name)
		_, granted := registration.RecordedClaim(role) // until the driver has revoked it
		return s.Claim == registration.Claim{AuthType: "one", Value: claim} && len(role.Rules) == 0 && !granted
	})
}

func (k *hubKube) awaitNoRole(t *testing.T, name string) {
	t.Helper()
	regtest.Eventually(t, "the ClusterRole of "+name+" is gone", func() bool {
		_, role := k.shows(t, name)
		return role.ResourceVersion == ""
	})
}

func TestHubPublishesOnARealAPIServer(t *testing.T) {
	k := startHub(t)
	driver := newHubDriver("one", driverAnnotation)
	driver.approves = false
	stop := k.run(t, k.controllerConfig(), 4, driver)
	t.Run("its auth types", func(t *testing.T) {
		published := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: ocm.HubNamespace, Name: ocm.HubAuthTypes}
		want := map[string]string{ocm.KeyAuthTypes: "one", ocm.KeyDefaultAuthType: "one"}
		regtest.Eventually(t, "the ConfigMap is there", func() bool {
			return k.admin.Get(t.Context(), key, published) == nil && maps.Equal(published.Data, want)
		})
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ocm.HubNamespace, Name: "other"}}
		hub := regtest.NewClient(t, k.controllerConfig())
		if err := hub.Create(t.Context(), other); !apierrors.IsForbidden(err) {
			t.Errorf("the hub writes another ConfigMap: %v", err)
		}
	})
	annotate := func(c client.Client, name, claim string) error {
		edit := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, driverAnnotation, claim)
		return c.Patch(t.Context(), managedCluster(name), client.RawPatch(types.MergePatchType, edit))
	}
	t.Run("a claim, and follows it", func(t *testing.T) {
		regtest.Must(t, k.admin.Create(t.Context(), managedCluster("published", annotated(driverAnnotation, "id-1"))))
		k.awaitClaim(t, "published", "id-1")
		regtest.Must(t, annotate(k.admin, "published", "id-2"))
		k.awaitClaim(t, "published", "id-2")
		if err := annotateAs(t, k.agent(t, "published"), roleFor("published")); !apierrors.IsForbidden(err) {
			t.Errorf("the agent writes the record: %v", err)
		}
	})
	t.Run("the claim of a denied cluster", func(t *testing.T) {
		regtest.Must(t, k.setAccepted(t, k.admin, "published", true))
		k.awaitCondition(t, "published", ocm.ConditionHubAccepted, ocm.ReasonHubAccepted)
		if _, role := k.shows(t, "published"); len(role.Rules) == 0 || role.Annotations[ocm.PendingSourceAnnotation] != "" {
			t.Errorf("the ClusterRole of an accepted cluster is %+v", role)
		}
		regtest.Must(t, annotate(k.admin, "published", "id-3"))
		regtest.Must(t, k.setAccepted(t, k.admin, "published", false))
		k.awaitClaim(t, "published", "id-3")
	})
	t.Run("nothing for a name that it refuses", func(t *testing.T) {
		regtest.Must(t, k.admin.Create(t.Context(), managedCluster("managed-clusters")))
		k.awaitCondition(t, "managed-clusters", ocm.ConditionHubAccepted, "InvalidName")
		if _, role := k.shows(t, "managed-clusters"); role.ResourceVersion != "" {
			t.Errorf("there is %+v", role)
		}
	})
	t.Run("nothing in another's ClusterRole", func(t *testing.T) {
		theirs := roleFor("taken")
		theirs.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
		regtest.Must(t, k.admin.Create(t.Context(), theirs))
		regtest.Must(t, k.admin.Create(t.Context(), managedCluster("taken")))
		k.awaitCondition(t, "taken", ocm.ConditionHubAccepted, "RBACTaken")
		regtest.Must(t, k.admin.Delete(t.Context(), managedCluster("taken")))
		regtest.Eventually(t, "the cluster is gone", func() bool { return k.get(t, "taken").Name == "" })
		if _, role := k.shows(t, "taken"); role.ResourceVersion != theirs.ResourceVersion {
			t.Errorf("the ClusterRole has changed: %+v", role)
		}
	})
	t.Run("nothing of a deleted cluster", func(t *testing.T) {
		regtest.Must(t, k.admin.Create(t.Context(), managedCluster("deleted")))
		k.awaitClaim(t, "deleted", "")
		regtest.Must(t, k.admin.Delete(t.Context(), managedCluster("deleted")))
		k.awaitNoRole(t, "deleted")
		regtest.Must(t, k.admin.Delete(t.Context(), managedCluster("published")))
		k.awaitNoRole(t, "published")
	})
	t.Run("nothing of a cluster that was deleted meanwhile", func(t *testing.T) {
		regtest.Must(t, k.admin.Create(t.Context(), managedCluster("meanwhile")))
		k.awaitClaim(t, "meanwhile", "")
		stop()
		regtest.Must(t, k.admin.Delete(t.Context(), managedCluster("meanwhile")))
		k.run(t, k.controllerConfig(), 4, driver)
		k.awaitNoRole(t, "meanwhile")
	})
}

func annotateAs(t *testing.T, c client.Client, o client.Object) error {
	t.Helper()
	edit := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"other"}}}`, ocm.PendingClaimAnnotation)
	return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, edit))
}
