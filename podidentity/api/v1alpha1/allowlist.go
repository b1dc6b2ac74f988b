package v1alpha1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AllowListName is the name of the only [IAMRoleAllowList]. With several lists,
// the admission policy would require that all of them agree.
const AllowListName = "cluster"

// IAMRoleAllowList lists the roles that each namespace may use. Its name is
// [AllowListName]. Only administrators of the cluster should be able to write
// it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=iamroleallowlists,scope=Cluster
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, KEP-14 was never implemented in Kubernetes"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="the only IAMRoleAllowList has the name cluster"
type IAMRoleAllowList struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IAMRoleAllowListSpec `json:"spec"`
}

// IAMRoleAllowListSpec allows a role if any of its rules does.
type IAMRoleAllowListSpec struct {
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Rules []AllowRule `json:"rules"`
}

// AllowRule allows each of its namespaces each of its roles. A pattern is a
// whole value, or a prefix and a final "*". No other character has a special
// meaning. The API server refuses a pattern that can match no namespace or no
// role.
type AllowRule struct {
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z0-9][-a-z0-9]*\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`
	Namespaces []string `json:"namespaces"`
	// Roles are patterns of role ARNs, such as
	// arn:aws:iam::123456789012:role/team-a/*.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=640
	// +kubebuilder:validation:items:Pattern=`^(\*|arn:(\*|aws[a-z-]*(\*|:(\*|iam::([0-9]{0,12}\*|[0-9]{12}:(\*|role(\*|/[!-)+-~]*(\*|[A-Za-z0-9_+=,.@-]))))))))$`
	Roles []string `json:"roles"`
}

// Allows reports whether a namespace may use a role. A nil list allows nothing.
func (l *IAMRoleAllowList) Allows(namespace, roleARN string) bool {
	return l != nil && slices.ContainsFunc(l.Spec.Rules, func(r AllowRule) bool {
		return matchesAny(r.Namespaces, namespace) && matchesAny(r.Roles, roleARN)
	})
}

func matchesAny(patterns []string, value string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return pattern == value || open && strings.HasPrefix(value, prefix)
	})
}

// IAMRoleAllowListList is a list of IAMRoleAllowLists.
//
// +kubebuilder:object:root=true
type IAMRoleAllowListList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IAMRoleAllowList `json:"items"`
}
