package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workloadid/workloadid/internal/lenient"
)

// GroupVersion is the API of pod identity.
var GroupVersion = schema.GroupVersion{Group: "iam.aws.k8s.io", Version: "v1alpha1"}

// IAMBinding gives the pods of a ServiceAccount in its namespace credentials of
// an IAM role. Two bindings of one ServiceAccount conflict, and neither serves.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=iambindings
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, KEP-14 was never implemented in Kubernetes"
// +kubebuilder:printcolumn:name="Service Account",type=string,JSONPath=`.spec.serviceAccountRef.name`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.aws.roleArn`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Assumable",type=string,JSONPath=`.status.conditions[?(@.type=="RoleAssumable")].status`
type IAMBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IAMBindingSpec `json:"spec"`
	// +optional
	Status IAMBindingStatus `json:"status,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. It skips values that Go cannot
// decode, so that no object makes a list fail.
func (b *IAMBinding) UnmarshalJSON(data []byte) error {
	type plain IAMBinding
	_, err := lenient.Unmarshal(data, (*plain)(b), &b.Status.Conditions)
	return err
}

// IAMBindingSpec names the role and the pods that get it.
type IAMBindingSpec struct {
	AWS AWSRole `json:"aws"`

	ServiceAccountRef ServiceAccountReference `json:"serviceAccountRef"`

	// Containers are the containers and init containers that get the variables
	// for the credentials. Empty means all. This prevents mistakes, not
	// attacks: all containers of a pod share the loopback, where the proxy
	// answers.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Containers []string `json:"containers,omitempty"`
}

// ServiceAccountReference names a ServiceAccount in the binding's namespace.
// The ServiceAccount need not exist yet.
type ServiceAccountReference struct {
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name has to be the name of a ServiceAccount: lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// AWSRole describes an IAM role and the sessions that pods get.
type AWSRole struct {
	// RoleARN is arn:<partition>:iam::<account>:role<path><name>. The role's
	// trust policy has to allow sts:AssumeRole and sts:TagSession to the
	// server's own role.
	// +kubebuilder:validation:MaxLength=640
	// +kubebuilder:validation:XValidation:rule="self.matches('^arn:aws(-[a-z]+)*:iam::[0-9]{12}:role(/[!-.0-~]+)*/[A-Za-z0-9_+=,.@-]{1,64}$')",message="roleArn has to be arn:aws:iam::<account>:role/<name>, with a path if the role has one"
	RoleARN string `json:"roleArn"`

	// ExternalID is the external ID that the role's trust policy may require
	// (sts:ExternalId).
	// +optional
	// +kubebuilder:validation:MaxLength=1224
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+=,.@:/-]{2,}$')",message="externalID has to be 2 to 1224 letters, digits or _+=,.@:/-"
	ExternalID string `json:"externalID,omitempty"`

	// SessionTags are further session tags. Their keys can neither be "cluster"
	// nor begin with "kubernetes-", because the server sets these. AWS ignores
	// the case of keys in all scripts. Keys are ASCII, so that no other letter
	// folds into such a key. Keys and values have at most 4096 bytes in UTF-8,
	// several times what AWS packs into a session.
	// +optional
	// +kubebuilder:validation:MaxProperties=45
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[A-Za-z0-9 _.:/=+@-]{1,128}$'))",message="a key of sessionTags has to be 1 to 128 ASCII letters, digits, blanks or _.:/=+@-"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.lowerAscii().matches('^(kubernetes-.*|cluster|aws:.*)$'))",message="a key of sessionTags cannot be cluster or begin with kubernetes- or aws:, the server sets these tags itself"
	// +kubebuilder:validation:XValidation:rule="self.map(k, k.size() + bytes(self[k]).size()).sum() <= 4096",message="sessionTags have at most 4096 bytes of keys and values"
	SessionTags map[string]TagValue `json:"sessionTags,omitempty"`

	// DurationSeconds is the lifetime of the credentials. AWS limits it to an
	// hour, because the server assumes the role with another role.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=2400
	// +kubebuilder:validation:Maximum=3600
	DurationSeconds int32 `json:"durationSeconds,omitempty"`

	// SessionPolicy is a policy in JSON, in the characters that AWS accepts:
	// tabs, line breaks, and Unicode from U+0020 to U+00FF. The session gets
	// only rights that both this policy and the role allow.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^\\\\s*\\\\{[\\\\t\\\\n\\\\r\\\\x20-\\\\xff]*\\\\}\\\\s*$')",message="sessionPolicy has to be a policy in JSON, {\"Version\": ...}, without characters beyond U+00FF"
	SessionPolicy string `json:"sessionPolicy,omitempty"`
}

// TagValue is the value of a session tag.
//
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:Pattern=`^[\p{L}\p{Z}\p{N}_.:/=+@-]*$`
type TagValue string

// maxDuration is the longest session that one role can get by assuming another.
const maxDuration = time.Hour

// Duration returns the lifetime of the credentials.
func (r *AWSRole) Duration() time.Duration {
	if r.DurationSeconds == 0 {
		return maxDuration
	}
	return time.Duration(r.DurationSeconds) * time.Second
}

// IAMBindingStatus is the server's view of the binding.
type IAMBindingStatus struct {
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of an [IAMBinding].
const (
	// ConditionAccepted reports whether pods are served: the IAMRoleAllowList
	// allows the role, and no other binding conflicts. Reasons: Accepted;
	// Conflict or RoleNotAllowed, which are also codes of the server's answers.
	ConditionAccepted = "Accepted"
	// ConditionConflict reports whether another binding names the same
	// ServiceAccount. Reasons: Conflict; NoConflict.
	ConditionConflict = "Conflict"
	// ConditionRoleAssumable reports whether AWS lets the server assume the
	// role. Reasons: Assumed; NotAccepted, or the code of AWS.
	ConditionRoleAssumable = "RoleAssumable"
)

// IAMBindingList is a list of IAMBindings.
//
// +kubebuilder:object:root=true
type IAMBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IAMBinding `json:"items"`
}

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &IAMBinding{}, &IAMBindingList{}, &IAMRoleAllowList{}, &IAMRoleAllowListList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
