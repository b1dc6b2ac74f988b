package addon

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// Condition and label of add-ons.
const (
	// ConditionTokenInfrastructureReady reports that the add-on's ServiceAccount exists and that the cluster may request its tokens.
	ConditionTokenInfrastructureReady = "TokenInfrastructureReady"
	// NameLabel is the label of objects that belong to an add-on, such as its CertificateSigningRequests.
	NameLabel = "open-cluster-management.io/addon-name"
)

// API is the version of the add-on API that a hub serves. The zero value is v1beta1.
//
// +kubebuilder:object:generate=false
type API struct{ older bool }

// Discover returns v1alpha1 where the hub serves it, else v1beta1. It fails with a meta.NoKindMatchError if the hub serves neither.
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

// AddAllToScheme adds the kinds of both versions to a scheme.
func AddAllToScheme(s *runtime.Scheme) error {
	if err := AddToScheme(s); err != nil {
		return err
	}
	return v1alpha1.AddToScheme(s)
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

// Status is the part of an add-on's status that registration uses, in any version.
//
// +kubebuilder:object:generate=false
type Status struct {
	// Namespace holds the credentials on the managed cluster.
	Namespace  string
	Items      []ocm.Registration
	Conditions []metav1.Condition
}

// StatusOf returns a deep copy of the status of an add-on of either version.
func StatusOf(addOn client.Object) Status {
	switch a := addOn.DeepCopyObject().(type) {
	case *v1alpha1.ManagedClusterAddOn:
		return Status{a.Status.Namespace, a.Status.Items(), a.Status.Conditions}
	case *ManagedClusterAddOn:
		return Status{a.Status.Namespace, a.Status.Items(), a.Status.Conditions}
	}
	return Status{}
}

// setStatus keeps the namespace, which the add-on's own controller writes, and items that have not changed.
func setStatus(addOn client.Object, s Status) {
	keep := reflect.DeepEqual(StatusOf(addOn).Items, s.Items)
	switch a := addOn.(type) {
	case *v1alpha1.ManagedClusterAddOn:
		a.Status.Conditions = s.Conditions
		if !keep {
			a.Status.SetItems(s.Items)
		}
	case *ManagedClusterAddOn:
		a.Status.Conditions = s.Conditions
		if !keep {
			a.Status.SetItems(s.Items)
		}
	}
}

// PatchStatus changes items and conditions of an add-on. It writes nothing if change returns false. The lists are atomic on the wire,
// so it patches with a resourceVersion and retries on conflict. Unknown fields survive.
func PatchStatus(ctx context.Context, c client.Client, addOn client.Object, change func(*Status) bool) error {
	first := true
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !first {
			if err := c.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
				return err
			}
		}
		first = false
		status := StatusOf(addOn)
		if !change(&status) {
			return nil
		}
		changed, ok := addOn.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("%T is no Kubernetes object", addOn)
		}
		setStatus(changed, status)
		return c.Status().Patch(ctx, changed, client.MergeFromWithOptions(addOn, client.MergeFromWithOptimisticLock{}))
	})
}
