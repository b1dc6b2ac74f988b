package ocm

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API of ManagedClusters.
var GroupVersion = schema.GroupVersion{Group: "cluster.open-cluster-management.io", Version: "v1"}

// ManagedCluster is a cluster that wants to join the hub, or has. Its name is that of its namespace on the hub.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName={mcl,mcls},path=managedclusters
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Hub Accepted",type=boolean,JSONPath=`.spec.hubAcceptsClient`
// +kubebuilder:printcolumn:name="Managed Cluster URLs",type=string,JSONPath=`.spec.managedClusterClientConfigs[*].url`
// +kubebuilder:printcolumn:name="Joined",type=string,JSONPath=`.status.conditions[?(@.type=="ManagedClusterJoined")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="ManagedClusterConditionAvailable")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ManagedCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ManagedClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ManagedClusterStatus `json:"status,omitempty"`
}

// ManagedClusterSpec is what the hub's administrator and the agent want.
type ManagedClusterSpec struct {
	// ManagedClusterClientConfigs are addresses of the cluster's API server, for information.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	ManagedClusterClientConfigs []ClientConfig `json:"managedClusterClientConfigs,omitempty"`
	// HubAcceptsClient lets the cluster in. To set it takes the verb update on managedclusters/accept.
	// +optional
	HubAcceptsClient bool `json:"hubAcceptsClient"`
	// LeaseDurationSeconds is how often the agent renews its Lease.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`
	// Taints keep work away from the cluster.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Taints []Taint `json:"taints,omitempty"`
}

// ClientConfig is an address of a cluster's API server.
type ClientConfig struct {
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// CABundle are PEM certificates. Empty means the system's.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`
}

// Taint keeps work away from a cluster.
type Taint struct {
	// +kubebuilder:validation:MaxLength=316
	Key string `json:"key"`
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
	// +kubebuilder:validation:Enum=NoSelect;PreferNoSelect;NoSelectIfNew
	Effect string `json:"effect"`
	// +nullable
	// +optional
	TimeAdded metav1.Time `json:"timeAdded"`
}

// ManagedClusterStatus is what hub and agent have found out.
type ManagedClusterStatus struct {
	// Conditions of the cluster. The admission policy of the hub lets a cluster fill half of them, so that the hub can add its own.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	Version ManagedClusterVersion `json:"version,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=128
	ClusterClaims []ManagedClusterClaim `json:"clusterClaims,omitempty"`
}

// ManagedClusterVersion is the software that the cluster runs.
type ManagedClusterVersion struct {
	// Kubernetes is the version of the API server, such as v1.36.3.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Kubernetes string `json:"kubernetes,omitempty"`
}

// ManagedClusterClaim is a fact that the cluster tells of itself.
type ManagedClusterClaim struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// ManagedClusterList is a list of ManagedClusters.
//
// +kubebuilder:object:root=true
type ManagedClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ManagedCluster `json:"items"`
}

// Conditions of a ManagedCluster, and reasons of HubAccepted.
const (
	ConditionJoined             = "ManagedClusterJoined"
	ConditionHubAccepted        = "HubAcceptedManagedCluster"
	ConditionAvailable          = "ManagedClusterConditionAvailable"
	ConditionClockSynced        = "ManagedClusterConditionClockSynced"
	ConditionDeleting           = "Deleting"
	ConditionCertificateRotated = "ClusterCertificateRotated"

	ReasonHubAccepted = "HubClusterAdminAccepted"
	ReasonHubDenied   = "HubClusterAdminDenied"
)

// Names of objects that belong to a cluster.
const (
	// ClusterNameLabel names the cluster on its CertificateSigningRequests and its namespace.
	ClusterNameLabel = "open-cluster-management.io/cluster-name"
	// Finalizer keeps a ManagedCluster until its access has been revoked.
	Finalizer = "cluster.open-cluster-management.io/api-resource-cleanup"
	// LeaseName is the Lease in the cluster's namespace that the agent renews.
	LeaseName = "managed-cluster-lease"
	// HubKubeconfigSecret holds the agent's credential on the managed cluster.
	HubKubeconfigSecret = "hub-kubeconfig-secret" //nolint:gosec // a name
)

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ManagedCluster{}, &ManagedClusterList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
