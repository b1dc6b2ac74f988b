package agent

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/cachetest"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// The agent watches the metadata of Secrets, ManagedClusters and add-ons. Each
// of its caches has this transform function.
func TestCachesKeepLittle(t *testing.T) {
	cachetest.Check(t, stripMetadata, &metav1.PartialObjectMetadata{})
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 2,
		Labels: map[string]string{addon.NameLabel: "addon1", "app": "b"}}}
	if _, err := stripMetadata(o); err != nil || o.Name != "a" || o.Generation != 2 ||
		o.Labels[addon.NameLabel] != "addon1" || len(o.Labels) != 1 {
		t.Errorf("it keeps %+v, %v", o, err)
	}
}
