package aws_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// AzureToken returns an Azure token for a ServiceAccount whose AWS role
// Microsoft Entra ID trusts. The controller has one issuer:
// provider.NewWebIdentityIssuer(aws.WebIdentity{},
// auth.WithSTSRegion("eu-central-1")). opts are auth.WithServiceAccount and
// auth.WithCache, as for every call.
func AzureToken(ctx context.Context, issuer *aws.WebIdentityIssuer, opts ...auth.Option) (*azure.Token, error) {
	token, err := auth.GetAccessToken(ctx, &azure.Provider{}, append(opts, auth.WithSubjectIssuer(issuer))...)
	if err != nil {
		return nil, err
	}
	return azure.FromToken(token)
}

// A tenant's AWS role is its identity in Azure, without an issuer of the
// cluster's at Azure.
func ExampleProvider_NewWebIdentityIssuer() {
	const tenant, clientID = "11111111-2222-3333-4444-555555555555", "aaaaaaaa-2222-3333-4444-555555555555"
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		log.Fatal(err)
	}
	defer cloud.Close()
	cloud.AWS().AddOIDCProvider(account, issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	cloud.AWS().SetRole(role("tenant-a"), cloudtest.Trust{Issuer: issuer.URL(),
		Subjects: []string{"system:serviceaccount:tenant-a:app"}})
	cloud.Azure().AddTenant("login.microsoftonline.com", tenant)
	cloud.Azure().AddFederatedCredential(tenant, clientID, cloudtest.FederatedCredential{
		Issuer: cloud.AWS().EnableOutboundFederation(account), Subject: role("tenant-a"), Audience: azure.DefaultAudience,
		Fetch: cloud.Client()})
	kube := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		Annotations: map[string]string{aws.RoleARNAnnotation: role("tenant-a"),
			azure.ClientIDAnnotation: clientID, azure.TenantIDAnnotation: tenant}}})

	roles, err := (&aws.Provider{}).NewWebIdentityIssuer(aws.WebIdentity{}, auth.WithSTSRegion("eu-central-1"),
		auth.WithHTTPClient(cloud.Client()))
	if err != nil {
		log.Fatal(err)
	}
	token, err := AzureToken(context.Background(), roles,
		auth.WithHTTPClient(cloud.Client()),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}),
		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kube))
	if err != nil {
		log.Fatal(err)
	}
	identity, _ := cloud.Azure().Identity(token.AccessToken().Token)
	fmt.Println(identity.Subject)
	// Output: arn:aws:iam::123456789012:role/tenant-a
}
