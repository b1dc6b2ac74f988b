package token

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/workloadid/workloadid/registration/ocm"
)

// The add-ons of a cluster are looked at again when it is denied, accepted or
// deleted, and not at each of its heartbeats.
func TestChangesOfAClusterThatRevokeItsAddOns(t *testing.T) {
	now := metav1.Now()
	accepted := ocm.ManagedClusterSpec{HubAcceptsClient: true}
	for name, tc := range map[string]struct {
		after ocm.ManagedCluster
		want  bool
	}{
		"denied":      {ocm.ManagedCluster{}, true},
		"in deletion": {ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}, Spec: accepted}, true},
		"relabelled": {ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: accepted}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := acceptanceChanged(event.UpdateEvent{ObjectOld: &ocm.ManagedCluster{Spec: accepted},
				ObjectNew: &tc.after}); got != tc.want {
				t.Errorf("%v", got)
			}
		})
	}
}
