package addon

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// Condition and label of add-ons.
const (
	// ConditionTokenInfrastructureReady reports that the add-on's
	// ServiceAccount exists and that the cluster may request its tokens.
	ConditionTokenInfrastructureReady = "TokenInfrastructureReady"
	// NameLabel is the label of objects that belong to an add-on, such as its
	// CertificateSigningRequests.
	NameLabel = "open-cluster-management.io/addon-name"
)

// AddToScheme adds the kinds of both versions to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ManagedClusterAddOn{}, &ManagedClusterAddOnList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return v1alpha1.AddToScheme(s)
}

// Status is the part of an add-on's status that registration uses, in any
// version.
//
// +kubebuilder:object:generate=false
type Status struct {
	// Namespace holds the credentials on the managed cluster.
	Namespace  string
	Items      []ocm.Registration
	Conditions []metav1.Condition
	// HealthCheckMode is Lease or Customized, and "" means Lease. Only the
	// add-on's own controller sets it; PatchStatus does not.
	HealthCheckMode string
}

// StatusOf returns a deep copy of the status of an add-on of either version.
func StatusOf(addOn client.Object) Status {
	switch a := addOn.DeepCopyObject().(type) {
	case *v1alpha1.ManagedClusterAddOn:
		return Status{a.Status.Namespace, a.Status.Items(), a.Status.Conditions, a.Status.HealthCheck.Mode}
	case *ManagedClusterAddOn:
		return Status{a.Status.Namespace, a.Status.Items(), a.Status.Conditions, a.Status.HealthCheck.Mode}
	}
	return Status{}
}

// setStatus keeps the namespace and the mode, which the add-on's own controller
// writes, and items that have not changed.
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

// PatchStatus changes items and conditions of an add-on. It writes nothing if
// change returns false. The lists are atomic on the wire, so it patches with a
// resourceVersion and retries on conflict. Unknown fields survive.
func PatchStatus(ctx context.Context, c client.Client, addOn client.Object, change func(*Status) bool) error {
	return optimistic.PatchStatus(ctx, c, addOn, func() bool {
		status := StatusOf(addOn)
		if !change(&status) {
			return false
		}
		setStatus(addOn, status)
		return true
	})
}
