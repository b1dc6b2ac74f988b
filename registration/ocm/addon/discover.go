package addon

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// API is the version of the add-on API that a hub serves: v1alpha1 on released
// hubs, v1beta1 on those with our CustomResourceDefinition. The zero value is
// v1beta1.
//
// +kubebuilder:object:generate=false
type API struct{ older bool }

// Discover returns v1alpha1 where the hub serves it, else v1beta1. It fails
// with a meta.NoKindMatchError if the hub serves neither.
func Discover(mapper meta.RESTMapper) (API, error) {
	kind := schema.GroupKind{Group: GroupVersion.Group, Kind: "ManagedClusterAddOn"}
	_, err := mapper.RESTMapping(kind, v1alpha1.GroupVersion.Version)
	if err == nil {
		return API{older: true}, nil
	}
	if meta.IsNoMatchError(err) {
		_, err = mapper.RESTMapping(kind, GroupVersion.Version)
	}
	if err != nil {
		return API{}, fmt.Errorf("find the API of add-ons on the hub: %w", err)
	}
	return API{}, nil
}

// New returns an empty add-on of the version.
func (a API) New() client.Object {
	if a.older {
		return &v1alpha1.ManagedClusterAddOn{}
	}
	return &ManagedClusterAddOn{}
}

// NewList returns an empty list of add-ons of the version.
func (a API) NewList() client.ObjectList {
	if a.older {
		return &v1alpha1.ManagedClusterAddOnList{}
	}
	return &ManagedClusterAddOnList{}
}
