package addon_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// A program reads an add-on in the version that the hub serves.
func ExampleDiscover() {
	show := func(ctx context.Context, hub client.Client, cluster string) error {
		api, err := addon.Discover(hub.RESTMapper())
		if err != nil {
			return err
		}
		addOn := api.New()
		if err := hub.Get(ctx, client.ObjectKey{Namespace: cluster, Name: "search"}, addOn); err != nil {
			return err
		}
		for _, item := range addon.StatusOf(addOn).Items {
			fmt.Println(addOn.GetName(), item.Type)
		}
		return nil
	}
	fmt.Println(show(context.Background(), releasedHub(), "shop"))
	// Output:
	// search kubeClient
	// <nil>
}

// releasedHub serves v1alpha1.
func releasedHub() client.Client {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("ManagedClusterAddOn"), meta.RESTScopeNamespace)
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(&v1alpha1.ManagedClusterAddOn{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "search"},
		Status: v1alpha1.ManagedClusterAddOnStatus{Registrations: []v1alpha1.RegistrationConfig{
			{SignerName: v1alpha1.KubeClientSigner}}},
	}).Build()
}
