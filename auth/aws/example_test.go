package aws_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A tenant's ServiceAccount has a role, and a client of the AWS SDK acts as it.
// In production the HTTP clients are left out.
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
	const role = "arn:aws:iam::123456789012:role/tenant-a"
	cloud.AWS().AddOIDCProvider("123456789012", issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	cloud.AWS().SetRole(role,
		cloudtest.Trust{Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:app"}})
	kubeClient := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		Annotations: map[string]string{aws.RoleARNAnnotation: role}}})

	credentials := aws.NewCredentialsProvider(
		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}),
		auth.WithSTSRegion("eu-central-1"),
		auth.WithHTTPClient(cloud.Client()))
	caller := sts.New(sts.Options{Region: "eu-central-1", Credentials: credentials, HTTPClient: cloud.Client()})
	identity, err := caller.GetCallerIdentity(context.Background(), &sts.GetCallerIdentityInput{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(*identity.Arn)
	// Output: arn:aws:sts::123456789012:assumed-role/tenant-a/tenant-a.app
}
