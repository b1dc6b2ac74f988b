package ocm

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workloadid/workloadid/internal/lenient"
)

// GroupVersion is the API of ManagedClusters.
var GroupVersion = schema.GroupVersion{Group: "cluster.open-cluster-management.io", Version: "v1"}

// ManagedCluster is a cluster that asks to join the hub, or has joined it. Its
// namespace on the hub has the same name.
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

	// Unreadable quotes the first value that the API server stored and that Go
	// cannot decode. It is empty without such a value. The field of that value
	// is zero, or 1970 for the time of a condition. It is not on the wire.
	Unreadable string `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler. It skips values that Go cannot
// decode, so that no object makes a list fail.
func (c *ManagedCluster) UnmarshalJSON(data []byte) (err error) {
	type plain ManagedCluster
	c.Unreadable, err = lenient.Unmarshal(data, (*plain)(c), &c.Status.Conditions)
	return err
}

// ManagedClusterSpec is the state that the hub's administrator and the agent
// ask for.
type ManagedClusterSpec struct {
	// ManagedClusterClientConfigs are addresses of the cluster's API server,
	// for information.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	ManagedClusterClientConfigs []ClientConfig `json:"managedClusterClientConfigs,omitempty"`
	// HubAcceptsClient accepts the cluster. Setting it requires the verb update
	// on managedclusters/accept.
	// +optional
	HubAcceptsClient bool `json:"hubAcceptsClient"`
	// LeaseDurationSeconds is the interval at which the agent renews its Lease.
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
	// TimeAdded is in RFC 3339. API servers accept other texts too, and
	// registration does not read it.
	// +nullable
	// +optional
	// +kubebuilder:validation:Format=date-time
	TimeAdded string `json:"timeAdded,omitempty"`
}

// ManagedClusterStatus is the state that hub and agent observe.
type ManagedClusterStatus struct {
	// Conditions are the cluster's conditions. The hub's admission policy lets
	// a cluster fill half of them, so that the hub can add its own.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Capacity adds up the resources of all nodes.
	// +optional
	Capacity ResourceList `json:"capacity,omitempty"`
	// Allocatable adds up what schedulable nodes have for pods.
	// +optional
	Allocatable ResourceList `json:"allocatable,omitempty"`
	// +optional
	Version ManagedClusterVersion `json:"version,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=128
	ClusterClaims []ManagedClusterClaim `json:"clusterClaims,omitempty"`
}

// ResourceList holds quantities by the name of their resource.
//
// +kubebuilder:validation:MaxProperties=128
type ResourceList map[string]Quantity

// Quantity is the text of a resource.Quantity, as a cluster wrote it. The CRDs
// of released hubs accept texts such as 1e-99999999, which
// resource.ParseQuantity computes for minutes: check the exponent before you
// parse one.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Pattern=`^[0-9]{1,32}(\.[0-9]{1,32})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`
type Quantity string

// UnmarshalJSON implements json.Unmarshaler. It reads numbers as their text.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		text = string(data)
	}
	*q = Quantity(text)
	return nil
}

// ManagedClusterVersion holds the version of the cluster's software.
type ManagedClusterVersion struct {
	// Kubernetes is the version of the API server, such as v1.36.3.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Kubernetes string `json:"kubernetes,omitempty"`
}

// ManagedClusterClaim is a fact that the cluster reports about itself.
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
	ConditionJoined      = "ManagedClusterJoined"
	ConditionHubAccepted = "HubAcceptedManagedCluster"
	ConditionAvailable   = "ManagedClusterConditionAvailable"

	ReasonHubAccepted = "HubClusterAdminAccepted"
	ReasonHubDenied   = "HubClusterAdminDenied"
)

// Names of objects that belong to a cluster.
const (
	// ClusterNameLabel names the cluster on its CertificateSigningRequests and
	// its namespace.
	ClusterNameLabel = "open-cluster-management.io/cluster-name"
	// Finalizer keeps a ManagedCluster until the hub has revoked its access.
	Finalizer = "cluster.open-cluster-management.io/api-resource-cleanup"
	// LeaseName names the Lease that the agent renews in the cluster's
	// namespace.
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
