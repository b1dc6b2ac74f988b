package hubadmin_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

func ExampleClusters() {
	scheme := runtime.NewScheme()
	_ = clientgoscheme.AddToScheme(scheme) // never fails
	_ = ocm.AddToScheme(scheme)
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop",
		Annotations: map[string]string{awsirsa.ARNAnnotation: "arn:aws:eks:eu-west-1:222222222222:cluster/shop"}}}).Build()

	clusters, err := hubadmin.Clusters(context.Background(), hub)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range clusters {
		fmt.Println(c.Name, c.AuthType, c.Claim, c.Accepted)
	}
	// Output: shop aws-irsa arn:aws:eks:eu-west-1:222222222222:cluster/shop false
}
