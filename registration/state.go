package registration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/registration/ocm"
)

// Stage is the hub's progress with a cluster.
type Stage string

const (
	// StagePending waits for a decision, or for the hub to act on the first
	// one.
	StagePending Stage = "pending"
	// StageAccepted has access to the hub.
	StageAccepted Stage = "accepted"
	// StageRefused has no access for the reason in State.Reason. An edit or a
	// retry of the hub corrects it.
	StageRefused Stage = "refused"
	// StageDenied was kept out or lost its access, by an administrator or by
	// the cluster itself.
	StageDenied Stage = "denied"
	// StageDeleting loses its access because its ManagedCluster is deleted.
	StageDeleting Stage = "deleting"
)

// Claim is an auth type, and the identity that a cluster claims with it.
type Claim struct {
	// AuthType is the name of a [HubDriver].
	AuthType string
	// Value is the claim of [HubDriver].Claim, such as an ARN. It is empty for
	// an auth type without claims, such as csr.
	Value string
}

// String quotes the claim, and truncates it to fit a line. A truncated claim
// shows its length, because two claims may begin alike.
func (c Claim) String() string {
	switch n := utf8.RuneCountInString(c.Value); {
	case n == 0:
		return fmt.Sprintf("auth type %q", c.AuthType)
	case n > 300:
		return fmt.Sprintf("auth type %q, claim %.300q… (%d characters)", c.AuthType, c.Value, n)
	}
	return fmt.Sprintf("auth type %q, claim %.300q", c.AuthType, c.Value)
}

// State describes the progress of a cluster towards access to a hub.
type State struct {
	// Stage follows from the reports of the hub.
	Stage Stage
	// Accepts is the decision of the administrator. It is false for a cluster
	// that is being deleted.
	Accepts bool
	// Acted reports whether the hub has acted on the last decision. For a
	// pending cluster it reports whether the hub has published its claim.
	Acted bool
	// Claim is the recorded claim of an accepted cluster. Otherwise it is the
	// claim that the hub grants upon acceptance. It is the zero Claim if the
	// hub refuses the claim, or has not read it since it changed.
	Claim Claim
	// Reason and Message come from the condition HubAcceptedManagedCluster, and
	// are empty without one. The hub writes them, and quotes the cluster.
	Reason, Message string
	// Since is the time of that condition. Without one, it is the creation time
	// of the ManagedCluster.
	Since time.Time
	// Failure quotes the last error of the hub, which the hub retries. It is
	// empty without an error. An accepted agent can write the condition
	// HubReconciled too.
	Failure string
	// Joined and Available are the status of these conditions, or empty without
	// one. The agent writes them.
	Joined, Available metav1.ConditionStatus
}

// HasAccess reports whether both the administrator and the hub give the cluster
// access.
func (s State) HasAccess() bool { return s.Stage == StageAccepted && s.Accepts }

// StateOf returns the state of a cluster, computed from its objects alone. role
// is the ClusterRole [ClusterRoleName] of the cluster, in which the hub records
// claims where agents cannot write. It may be nil or empty if it does not
// exist, and nil if the caller needs no Claim.
//
// Only a hub passes a claim, which its drivers read from the cluster. With the
// zero Claim, StateOf reads the record of the hub. The record applies only to
// the annotations and the spec that the hub has read, not to later ones. An
// accept at the resourceVersion that was passed here thus covers exactly
// [State.Claim].
func StateOf(cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole, claim Claim) State {
	find := func(kind string) (c metav1.Condition) {
		if found := meta.FindStatusCondition(cluster.Status.Conditions, kind); found != nil {
			c = *found
		}
		return c
	}
	decided, reconciled := find(ocm.ConditionHubAccepted), find(ocm.ConditionReconciled)
	s := State{Stage: StagePending, Claim: claim,
		Accepts: cluster.Spec.HubAcceptsClient && cluster.DeletionTimestamp.IsZero(),
		Reason:  decided.Reason, Message: decided.Message, Since: decided.LastTransitionTime.Time,
		Joined: find(ocm.ConditionJoined).Status, Available: find(ocm.ConditionAvailable).Status}
	if decided.Type == "" {
		s.Since = cluster.CreationTimestamp.Time
	}
	if reconciled.Status == metav1.ConditionFalse {
		s.Failure = reconciled.Message
	}
	if granted, ok := RecordedClaim(role); ok && cluster.Spec.HubAcceptsClient {
		s.Claim = granted
	} else if claim == (Claim{}) {
		s.Claim = pendingClaim(cluster, role)
	}
	refused := decided.Status == metav1.ConditionFalse && decided.Reason != ocm.ReasonWaiting
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		s.Stage, s.Acted = StageDeleting, !slices.Contains(cluster.Finalizers, ocm.Finalizer)
	case decided.Status == metav1.ConditionTrue:
		s.Stage, s.Acted = StageAccepted, s.Accepts
	case refused && decided.Reason == ocm.ReasonHubDenied:
		s.Stage, s.Acted = StageDenied, !s.Accepts
	case refused:
		s.Stage, s.Acted = StageRefused, decided.ObservedGeneration == cluster.Generation
	default:
		s.Acted = !s.Accepts && s.Claim.AuthType != ""
	}
	return s
}

// RecordedClaim returns the claim that the hub recorded before it granted the
// cluster of a ClusterRole its access. ok is false without a grant.
func RecordedClaim(role *rbacv1.ClusterRole) (claim Claim, ok bool) {
	if role == nil {
		return Claim{}, false
	}
	authType, ok := role.Annotations[ocm.AuthTypeAnnotation]
	return Claim{authType, role.Annotations[ocm.ClaimAnnotation]}, ok
}

// PublishClaim records the claim that the drivers of a hub read from a cluster
// that is not accepted. It writes to the cluster's ClusterRole, where [StateOf]
// finds it. Only a hub calls it.
func PublishClaim(role *rbacv1.ClusterRole, cluster *ocm.ManagedCluster, claim Claim) {
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.PendingAuthTypeAnnotation, claim.AuthType)
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.PendingClaimAnnotation, claim.Value)
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, ocm.PendingSourceAnnotation, claimSource(cluster))
}

// pendingClaim returns the published claim of a cluster that is not accepted,
// if the hub has read it from this state of the cluster.
func pendingClaim(cluster *ocm.ManagedCluster, role *rbacv1.ClusterRole) Claim {
	if role == nil || role.Annotations[ocm.PendingSourceAnnotation] != claimSource(cluster) {
		return Claim{}
	}
	return Claim{role.Annotations[ocm.PendingAuthTypeAnnotation], role.Annotations[ocm.PendingClaimAnnotation]}
}

// claimSource returns a hash of the sources of a claim: the annotations and the
// spec of a cluster, without the decision.
func claimSource(cluster *ocm.ManagedCluster) string {
	source := ocm.ManagedCluster{Spec: cluster.Spec}
	source.UID, source.Annotations = cluster.UID, cluster.Annotations
	source.Spec.HubAcceptsClient = false
	content, _ := json.Marshal(source) // texts, numbers and a boolean always encode
	return fmt.Sprintf("%x", sha256.Sum256(content))
}
