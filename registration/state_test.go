package registration_test

import (
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "message of " + reason,
		ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(time.Unix(100, 0))}
}

func newCluster(accepts bool, conditions ...metav1.Condition) *ocm.ManagedCluster {
	return &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "1", Generation: 2,
		CreationTimestamp: metav1.NewTime(time.Unix(50, 0)), Annotations: map[string]string{"example.com/serial": "4711"}},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: accepts}, Status: ocm.ManagedClusterStatus{Conditions: conditions}}
}

var (
	granted  = registration.Claim{AuthType: "example", Value: "granted"}
	claimed  = registration.Claim{AuthType: "example", Value: "claimed"}
	recorded = map[string]string{ocm.AuthTypeAnnotation: "example", ocm.ClaimAnnotation: "granted"}
)

func published(cluster *ocm.ManagedCluster, annotations map[string]string) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{}
	registration.PublishClaim(role, cluster, claimed)
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&role.ObjectMeta, key, value)
	}
	return role
}

func TestStateOf(t *testing.T) {
	const pending, accepted, refused = registration.StagePending, registration.StageAccepted, registration.StageRefused
	const denied, deleting = registration.StageDenied, registration.StageDeleting
	decided := func(accepts bool, status metav1.ConditionStatus, reason string) *ocm.ManagedCluster {
		return newCluster(accepts, condition(ocm.ConditionHubAccepted, status, reason))
	}
	deleted := func(finalizers ...string) *ocm.ManagedCluster {
		c := decided(true, "True", ocm.ReasonHubAccepted)
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Unix(200, 0)}, finalizers
		return c
	}
	edited := decided(true, "False", ocm.ReasonGrantFailed)
	edited.Generation++
	for name, row := range map[string]struct {
		cluster        *ocm.ManagedCluster
		stage          registration.Stage
		accepts, acted bool
	}{
		"new":                                   {newCluster(false), pending, false, true},
		"a refusal is mended":                   {decided(false, "False", ocm.ReasonWaiting), pending, false, true},
		"accepted, the hub has not acted":       {newCluster(true), pending, true, false},
		"accepted":                              {decided(true, "True", ocm.ReasonHubAccepted), accepted, true, true},
		"accepted, the claim has changed":       {decided(true, "True", ocm.ReasonClaimChanged), accepted, true, true},
		"denied, the hub has not acted":         {decided(false, "True", ocm.ReasonHubAccepted), accepted, false, false},
		"denied":                                {decided(false, "False", ocm.ReasonHubDenied), denied, false, true},
		"accepted again, the hub has not acted": {decided(true, "False", ocm.ReasonHubDenied), denied, true, false},
		"refused":                               {decided(true, "False", ocm.ReasonGrantFailed), refused, true, true},
		"refused before acceptance":             {decided(false, "False", "InvalidClaim"), refused, false, true},
		"refused before the last edit":          {edited, refused, true, false},
		"a status that no hub writes":           {decided(false, "Unknown", ocm.ReasonHubDenied), pending, false, true},
		"deleting":                              {deleted(ocm.Finalizer), deleting, false, false},
		"deleting, kept by another program":     {deleted("example.com/other"), deleting, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := registration.StateOf(row.cluster, published(row.cluster, nil), registration.Claim{})
			if s.Stage != row.stage || s.Accepts != row.accepts || s.Acted != row.acted || s.Claim != claimed ||
				s.HasAccess() != (row.stage == accepted && row.accepts) {
				t.Errorf("got %+v", s)
			}
		})
	}
}

func TestStateOfQuotesTheConditions(t *testing.T) {
	s := registration.StateOf(newCluster(true, condition(ocm.ConditionHubAccepted, "True", "Accepted"),
		condition(ocm.ConditionReconciled, "False", "Failed"), condition(ocm.ConditionJoined, "True", "Joined"),
		condition(ocm.ConditionAvailable, "Unknown", "Lease")), nil, registration.Claim{})
	want := registration.State{Stage: registration.StageAccepted, Accepts: true, Acted: true,
		Reason: "Accepted", Message: "message of Accepted", Since: time.Unix(100, 0), Failure: "message of Failed",
		Joined: "True", Available: "Unknown"}
	if s != want {
		t.Errorf("got %+v", s)
	}
	s = registration.StateOf(newCluster(false), nil, registration.Claim{})
	if !s.Since.Equal(time.Unix(50, 0)) || s.Acted {
		t.Errorf("a new cluster is %+v", s)
	}
}

// A claim is that of the cluster as the hub has read it, and an accepted
// cluster keeps what it was granted.
func TestStateOfTakesTheClaimFromTheHub(t *testing.T) {
	accepted := condition(ocm.ConditionHubAccepted, "True", ocm.ReasonHubAccepted)
	none := registration.Claim{}
	pending, both := published(newCluster(false), nil), published(newCluster(false), recorded)
	annotated, respecified, recreated := newCluster(false), newCluster(false), newCluster(false)
	annotated.Annotations["a"] = "b"
	respecified.Spec.LeaseDurationSeconds = 7
	recreated.UID = "2"
	for name, row := range map[string]struct {
		cluster *ocm.ManagedCluster
		role    *rbacv1.ClusterRole
		read    registration.Claim // by the hub itself
		want    registration.Claim
	}{
		"no ClusterRole":                  {newCluster(false), nil, none, none},
		"an empty ClusterRole":            {newCluster(false), &rbacv1.ClusterRole{}, none, none},
		"published":                       {newCluster(false), pending, none, claimed},
		"published, accepted since":       {newCluster(true), pending, none, claimed},
		"published, annotations edited":   {annotated, pending, none, none},
		"published, spec edited":          {respecified, pending, none, none},
		"published, another cluster":      {recreated, pending, none, none},
		"granted":                         {newCluster(true, accepted), both, none, granted},
		"granted, not accepted any more":  {newCluster(false, accepted), both, none, claimed},
		"the hub's own drivers":           {newCluster(false), nil, claimed, claimed},
		"the hub's own drivers, recorded": {newCluster(true, accepted), both, claimed, granted},
	} {
		t.Run(name, func(t *testing.T) {
			if s := registration.StateOf(row.cluster, row.role, row.read); s.Claim != row.want {
				t.Errorf("got %s", s.Claim)
			}
		})
	}
}

// A page of a hub operator lists what waits for a decision.
func ExampleStateOf() {
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1",
		Annotations: map[string]string{"example.com/serial": "4711"}}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName(cluster.Name)}}
	show := func() {
		switch s := registration.StateOf(cluster, role, registration.Claim{}); {
		case s.HasAccess():
			fmt.Println(cluster.Name, "has access as", s.Claim)
		case !s.Acted:
			fmt.Println(cluster.Name, "waits for the hub")
		case s.Stage == registration.StagePending:
			fmt.Println(cluster.Name, "waits for an administrator as", s.Claim)
		}
	}
	show()
	// The hub does this.
	registration.PublishClaim(role, cluster, registration.Claim{AuthType: "example", Value: "serial:4711"})
	show()
	// Output:
	// cluster1 waits for the hub
	// cluster1 waits for an administrator as auth type "example", claim "serial:4711"
}
