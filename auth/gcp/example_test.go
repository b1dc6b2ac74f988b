package gcp_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A tenant's ServiceAccount impersonates a service account. In production the
// HTTP client is left out.
func Example() {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	const pool = "projects/123456789012/locations/global/workloadIdentityPools/east"
	cloud.GCP().SetWorkloadIdentityProvider(pool+"/providers/east", cloudtest.WorkloadIdentityProvider{
		Issuer: issuer.URL(), Fetch: issuer.HTTPClient()})
	cloud.GCP().SetServiceAccount("app@project.iam.gserviceaccount.com", cloudtest.GCPServiceAccount{
		WorkloadIdentityUsers: []string{"principal://iam.googleapis.com/" + pool +
			"/subject/system:serviceaccount:tenant-a:app"}})
	kubeClient := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		Annotations: map[string]string{
			gcp.WorkloadIdentityProviderAnnotation: pool + "/providers/east",
			gcp.ServiceAccountAnnotation:           "app@project.iam.gserviceaccount.com",
		}}})

	credentials := gcp.NewCredentials(
		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}),
		auth.WithHTTPClient(cloud.Client()))
	token, err := credentials.Token(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	who, _ := cloud.GCP().Identity(token.Value)
	fmt.Println(who.Email)
	// Output: app@project.iam.gserviceaccount.com
}
