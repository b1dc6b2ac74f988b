package hubcmd

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

// The hub creates a Lease that is missing, which is no news of the agent. A
// first join needs no Lease.
func TestHubAcceptTakesOnlyARenewalForTheAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		joined, lease bool // before
		renewals      int  // writes of the Lease afterwards, the first one by the hub if there was none
		want          bool
	}{
		"first join":                       {want: true},
		"joined before, Lease unchanged":   {joined: true, lease: true},
		"joined before, Lease renewed":     {joined: true, lease: true, renewals: 1, want: true},
		"joined before, Lease of the hub":  {joined: true, renewals: 1},
		"joined before, that Lease renews": {joined: true, renewals: 2, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newClaimHub(t)
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ocm.LeaseName}}
			if tc.lease {
				regtest.Must(t, h.fake.Create(t.Context(), lease))
			}
			cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			if tc.joined {
				cluster.Status.Conditions = []metav1.Condition{{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue}}
			}
			a := &acceptance{deciding: &deciding{hub: h.fake, wait: true}, cluster: cluster}
			err := a.readLease(t.Context())
			regtest.Must(t, err)
			renews := func() bool {
				got, err := a.renewed(t.Context())
				regtest.Must(t, err)
				return got
			}
			got := renews()
			for range tc.renewals {
				if lease.ResourceVersion == "" {
					err = h.fake.Create(t.Context(), lease)
				} else {
					err = h.fake.Update(t.Context(), lease)
				}
				regtest.Must(t, err)
				got = renews()
			}
			if got != tc.want {
				t.Errorf("renews is %t", got)
			}
		})
	}
}

// An agent renews its Lease once a lease duration, so that a shorter --timeout
// cannot do.
func TestHubAcceptSaysHowLongARenewalTakes(t *testing.T) {
	h := newClaimHub(t)
	joined := []metav1.Condition{{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue},
		{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue}}
	for want, seconds := range map[string]int32{"which it does every 1m0s": 0, "which it does every 5m0s": 300} {
		cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("shop-", seconds)},
			Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: seconds}}
		regtest.Must(t, h.fake.Create(t.Context(), cluster))
		cluster.Status.Conditions = joined
		regtest.Must(t, h.fake.Status().Update(t.Context(), cluster))
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Name, Name: ocm.LeaseName}}
		regtest.Must(t, h.fake.Create(t.Context(), lease))
		a := &acceptance{deciding: &deciding{cmd: newHubAccept(), hub: h.fake, wait: true}, cluster: cluster}
		regtest.Must(t, a.readLease(t.Context()))
		waitingFor, err := a.joined(t.Context())
		if err != nil || !strings.Contains(waitingFor, want) {
			t.Errorf("it waits %q, %v", waitingFor, err)
		}
	}
}
