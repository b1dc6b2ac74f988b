// Package v1alpha1 holds the older wire types of OCM's add-on API, which
// released hubs store. Items converts the registration items to the form that
// drivers see. Package addon holds v1beta1, and explains why a program uses
// only one of the two.
//
// +kubebuilder:object:generate=true
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workloadid/workloadid/internal/lenient"
	"github.com/workloadid/workloadid/registration/ocm"
)

// GroupVersion is the older API of add-ons.
var GroupVersion = schema.GroupVersion{Group: "addon.open-cluster-management.io", Version: "v1alpha1"}

// KubeClientSigner is the signer of kubeClient items.
const KubeClientSigner = "kubernetes.io/kube-apiserver-client"

// ManagedClusterAddOn is an add-on of a managed cluster, in the cluster's
// namespace.
//
// +kubebuilder:object:root=true
type ManagedClusterAddOn struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status ManagedClusterAddOnStatus `json:"status,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. It skips values that Go cannot
// decode, so that no object makes a list fail.
func (a *ManagedClusterAddOn) UnmarshalJSON(data []byte) error {
	type plain ManagedClusterAddOn
	_, err := lenient.Unmarshal(data, (*plain)(a), &a.Status.Conditions)
	return err
}

// ManagedClusterAddOnStatus holds the fields that registration uses.
type ManagedClusterAddOnStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Namespace holds the credentials on the managed cluster.
	Namespace     string               `json:"namespace,omitempty"`
	Registrations []RegistrationConfig `json:"registrations,omitempty"`
	// KubeClientDriver is the driver of all kubeClient items, and "" until the
	// agent has declared it.
	KubeClientDriver string      `json:"kubeClientDriver,omitempty"`
	HealthCheck      HealthCheck `json:"healthCheck,omitzero"`
}

// HealthCheck has the mode Lease, the default, or Customized.
type HealthCheck struct {
	Mode string `json:"mode,omitempty"`
}

// RegistrationConfig is a registration item. The signer KubeClientSigner means
// the hub's API server.
type RegistrationConfig struct {
	SignerName string  `json:"signerName"`
	Subject    Subject `json:"subject,omitempty"`
}

// Subject is the identity in a credential. The name of the organization units
// is singular on the wire.
type Subject struct {
	User              string   `json:"user,omitempty"`
	Groups            []string `json:"groups,omitempty"`
	OrganizationUnits []string `json:"organizationUnit,omitempty"`
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
		item := ocm.Registration{Type: ocm.CustomSigner, SignerName: r.SignerName, Subject: ocm.Subject(r.Subject)}
		if r.SignerName == KubeClientSigner {
			item.Type, item.SignerName, item.Driver = ocm.KubeClient, "", s.KubeClientDriver
		}
		items = append(items, item)
	}
	return items
}

// SetItems reverses Items. All kubeClient items share the driver of the last
// one.
func (s *ManagedClusterAddOnStatus) SetItems(items []ocm.Registration) {
	s.Registrations, s.KubeClientDriver = nil, ""
	for _, item := range items {
		r := RegistrationConfig{SignerName: item.SignerName, Subject: Subject(item.Subject)}
		if item.Type == ocm.KubeClient {
			r.SignerName, s.KubeClientDriver = KubeClientSigner, item.Driver
		}
		s.Registrations = append(s.Registrations, r)
	}
}

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ManagedClusterAddOn{}, &ManagedClusterAddOnList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
