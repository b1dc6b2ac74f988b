package manifests_test

import (
	"fmt"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
)

func ExampleHub() {
	hub,
		err := manifests.Hub(manifests.HubOptions{Image: "registry.example/wid-hub:v1",
		AuthTypes: []string{registration.AuthTypeCSR}})
	if err != nil {
		fmt.Println(err)
		return
	}
	objects, err := manifests.Parse(hub)
	if err != nil {
		fmt.Println(err)
		return
	}
	first, last := objects[0], objects[len(objects)-1]
	fmt.Println(first.GetKind(), first.GetName())
	fmt.Println(last.GetKind(), last.GetNamespace()+"/"+last.GetName())
	// Output:
	// CustomResourceDefinition managedclusters.cluster.open-cluster-management.io
	// Deployment open-cluster-management-hub/registration-controller
}
