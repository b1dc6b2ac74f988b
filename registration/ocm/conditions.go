package ocm

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of a ManagedCluster, in addition to ConditionJoined,
// ConditionHubAccepted and ConditionAvailable.
const (
	// ConditionCertificateRotated reports the renewal of the client certificate
	// of a cluster or an add-on.
	ConditionCertificateRotated = "ClusterCertificateRotated"
	// ConditionClockSynced is written by the hub of Open Cluster Management.
	ConditionClockSynced = "ManagedClusterConditionClockSynced"
	// ConditionDeleting names the objects that keep a deleted cluster.
	// Condition and reason come from Open Cluster Management.
	ConditionDeleting = "Deleting"
	// ConditionReconciled is False while a reconcile of the hub fails, and
	// quotes the error. The hub removes it afterwards.
	ConditionReconciled = "HubReconciled"
	// ConditionClusterStatus is False while the agent cannot report all of the
	// capacity, the allocatable resources and the ClusterClaims of its cluster.
	// The agent removes it afterwards.
	ConditionClusterStatus = "ClusterStatusReported"
	// ConditionIAMRoleReady reports whether the agent can use its AWS IAM role
	// on the hub.
	ConditionIAMRoleReady = "ClusterIAMRoleReady"
)

// Reasons of ConditionHubAccepted and ConditionAvailable.
const (
	ReasonGrantFailed = "GrantFailed"
	// ReasonClaimChanged has the status True: the cluster keeps its grant.
	ReasonClaimChanged = "ClaimChanged"
	// ReasonWaiting follows a refusal whose cause is gone.
	ReasonWaiting = "WaitingForAcceptance"
	// ReasonLeaseStopped is the reason of
	// ManagedClusterConditionAvailable=Unknown.
	ReasonLeaseStopped = "ManagedClusterLeaseUpdateStopped"
)

// Conditions of add-ons, in addition to
// addon.ConditionTokenInfrastructureReady.
const (
	// ConditionRegistrationAccepted is False while the agent refuses an item of
	// an add-on, and True once the cause is gone.
	ConditionRegistrationAccepted = "RegistrationAccepted"
	// ConditionAddOnTokenRefreshed reports the token of an add-on. It has one
	// name in the specification and another in Open Cluster Management.
	ConditionAddOnTokenRefreshed = "AddonTokenRefreshed"
	ConditionTokenRefreshed      = "TokenRefreshed"
)

// Reasons of addon.ConditionTokenInfrastructureReady.
const (
	ReasonTokensReady        = "TokenInfrastructureReady"
	ReasonClusterNotAccepted = "ClusterNotAccepted"
	ReasonForbidden          = "Forbidden"
)

// ActionApprove is the action of Events about a CertificateSigningRequest.
// Their type is Warning if the hub refuses it, and their reason then names the
// cause.
const ActionApprove = "Approve"

// maxConditionMessage is the API server's limit.
const maxConditionMessage = 32768

// SetCondition sets a condition of a cluster or an add-on, and reports whether
// it differs. It truncates a message that exceeds the API server's limit. A
// denial counts from the time when the cluster was denied, whatever the status
// was before.
func SetCondition(conditions *[]metav1.Condition, c metav1.Condition) (changed bool) {
	if len(c.Message) > maxConditionMessage {
		c.Message = strings.ToValidUTF8(c.Message[:maxConditionMessage], "")
	}
	had := meta.FindStatusCondition(*conditions, c.Type)
	if had != nil && had.Reason != c.Reason && c.Reason == ReasonHubDenied {
		had.Status = metav1.ConditionUnknown // meta keeps the time unless the status changes
	}
	return meta.SetStatusCondition(conditions, c)
}
