// Package addon holds the wire types of OCM's add-on API in v1beta1, and their
// CustomResourceDefinition. Drivers see the items of every version as
// [ocm.Registration].
//
// +kubebuilder:object:generate=true
// +groupName=addon.open-cluster-management.io
// +versionName=v1beta1
package addon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workloadid/workloadid/internal/lenient"
	"github.com/workloadid/workloadid/registration/ocm"
)

// GroupVersion is the newer API of add-ons, which the shipped
// CustomResourceDefinition serves. Released hubs store v1alpha1. Use one of the
// two, never both. Without the hub's conversion webhook, items written in one
// version read back empty in the other.
var GroupVersion = schema.GroupVersion{Group: "addon.open-cluster-management.io", Version: "v1beta1"}

// ManagedClusterAddOn is an add-on of a managed cluster, in the cluster's
// namespace, in v1beta1.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=managedclusteraddons,shortName={mca,mcas}
// +kubebuilder:storageversion
type ManagedClusterAddOn struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ManagedClusterAddOnSpec `json:"spec,omitempty"`
	// +optional
	Status ManagedClusterAddOnStatus `json:"status,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. It skips values that Go cannot
// decode, so that no object makes a list fail.
func (a *ManagedClusterAddOn) UnmarshalJSON(data []byte) error {
	type plain ManagedClusterAddOn
	_, err := lenient.Unmarshal(data, (*plain)(a), &a.Status.Conditions)
	return err
}

// ManagedClusterAddOnSpec is empty, because only other controllers use it.
type ManagedClusterAddOnSpec struct{}

// ManagedClusterAddOnStatus holds the fields of v1beta1 that registration uses.
type ManagedClusterAddOnStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Namespace holds the credentials on the managed cluster.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Registrations []RegistrationConfig `json:"registrations,omitempty"`
	// +optional
	HealthCheck HealthCheck `json:"healthCheck,omitzero"`
}

// HealthCheck selects the program that reports the condition Available of an
// add-on.
type HealthCheck struct {
	// Mode is Lease, the default, if the agent reports by the add-on's Lease,
	// and Customized if another program reports.
	// +optional
	// +kubebuilder:validation:Enum=Lease;Customized
	Mode string `json:"mode,omitempty"`
}

// RegistrationConfig is a registration item in v1beta1.
type RegistrationConfig struct {
	// +kubebuilder:validation:Enum=kubeClient;customSigner
	Type string `json:"type"`
	// +optional
	KubeClient *KubeClientConfig `json:"kubeClient,omitempty"`
	// +optional
	CustomSigner *CustomSignerConfig `json:"customSigner,omitempty"`
}

// KubeClientConfig is an item for the hub's API server.
type KubeClientConfig struct {
	// +optional
	// +kubebuilder:validation:Enum=csr;token
	Driver string `json:"driver,omitempty"`
	// +optional
	Subject KubeClientSubject `json:"subject,omitempty"`
}

// KubeClientSubject is a Subject without organization units.
type KubeClientSubject struct {
	// +optional
	User string `json:"user,omitempty"`
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
}

// CustomSignerConfig is an item for other servers that accept client
// certificates.
type CustomSignerConfig struct {
	// +kubebuilder:validation:MinLength=5
	// +kubebuilder:validation:MaxLength=571
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)+[a-z0-9]+([-a-z0-9]*[a-z0-9])?/[a-z0-9]+([-a-zA-Z0-9.]*[a-zA-Z0-9])?$`
	SignerName string `json:"signerName"`
	// +optional
	Subject ocm.Subject `json:"subject,omitempty"`
}

// ManagedClusterAddOnList is a list of ManagedClusterAddOns.
//
// +kubebuilder:object:root=true
type ManagedClusterAddOnList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ManagedClusterAddOn `json:"items"`
}

// Items returns the registration items in the form that drivers see.
func (s *ManagedClusterAddOnStatus) Items() []ocm.Registration {
	var items []ocm.Registration
	for _, r := range s.Registrations {
		item := ocm.Registration{Type: r.Type}
		if k := r.KubeClient; k != nil {
			item.Driver, item.Subject = k.Driver, ocm.Subject{User: k.Subject.User, Groups: k.Subject.Groups}
		}
		if c := r.CustomSigner; c != nil {
			item.SignerName, item.Subject = c.SignerName, c.Subject
		}
		items = append(items, item)
	}
	return items
}

// SetItems reverses Items.
func (s *ManagedClusterAddOnStatus) SetItems(items []ocm.Registration) {
	s.Registrations = nil
	for _, item := range items {
		r := RegistrationConfig{Type: item.Type}
		if item.Type == ocm.KubeClient {
			r.KubeClient = &KubeClientConfig{Driver: item.Driver,
				Subject: KubeClientSubject{User: item.Subject.User, Groups: item.Subject.Groups}}
		} else if item.SignerName != "" { // the API server accepts an item without a body, and refuses an empty name
			r.CustomSigner = &CustomSignerConfig{SignerName: item.SignerName, Subject: item.Subject}
		}
		s.Registrations = append(s.Registrations, r)
	}
}
