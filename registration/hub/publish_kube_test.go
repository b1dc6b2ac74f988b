package hub_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestHubPublishesOnARealAPIServer(t *testing.T) {
	k := startHub(t)
	driver := newHubDriver("one", driverAnnotation)
	stop := k.run(t, k.controllerConfig(), 4, driver)
	k.Step("its auth types", func(t *testing.T) {
		published := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: ocm.HubNamespace, Name: ocm.HubAuthTypes}
		want := map[string]string{ocm.KeyAuthTypes: "one", ocm.KeyDefaultAuthType: "one"}
		kubetest.Eventually(t, "the ConfigMap is there", func() bool {
			return k.Admin.Get(t.Context(), key, published) == nil && maps.Equal(published.Data, want)
		})
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ocm.HubNamespace, Name: "other"}}
		hub := regtest.NewClient(t, k.controllerConfig())
		if err := hub.Create(t.Context(), other); !apierrors.IsForbidden(err) {
			t.Errorf("the hub writes another ConfigMap: %v, want Forbidden", err)
		}
	})
	k.Step("nothing of a cluster that was deleted meanwhile", func(t *testing.T) {
		there := func() bool {
			err := k.Admin.Get(t.Context(), client.ObjectKeyFromObject(roleFor("meanwhile")), roleFor("meanwhile"))
			regtest.Must(t, client.IgnoreNotFound(err))
			return err == nil
		}
		regtest.Must(t, k.Admin.Create(t.Context(), managedCluster("meanwhile")))
		kubetest.Eventually(t, "the hub shows its claim", there)
		stop()
		regtest.Must(t, k.Admin.Delete(t.Context(), managedCluster("meanwhile")))
		k.run(t, k.controllerConfig(), 4, driver)
		kubetest.Eventually(t, "its ClusterRole is gone", func() bool { return !there() })
	})
}
