package credentials

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

const (
	subject  = "system:serviceaccount:tenant-a:app"
	roleARN  = "arn:aws:iam::123456789012:role/tenant-a"
	eks      = "arn:aws:eks:eu-central-1:123456789012:cluster/prod"
	tenant   = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	clientID = "11111111-2222-4333-8444-555555555555"
	pool     = "projects/123456789012/locations/global/workloadIdentityPools/clusters/providers/prod"
)

// newEnvironment returns a reconciler, and the services that trust its cluster.
func newEnvironment(t *testing.T) (*Reconciler, *cloudtest.Cloud) {
	t.Helper()
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)

	// AWS: the role, and with it ECR and a cluster of EKS.
	cloud.AWS().AddOIDCProvider("123456789012", issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	cloud.AWS().SetRole(roleARN, cloudtest.Trust{Issuer: issuer.URL(), Subjects: []string{subject}})
	cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: eks, Endpoint: "https://prod.example", CA: cloud.CA()})
	// Azure: a federated credential of an application, and a resource that it
	// may use.
	cloud.Azure().AddFederatedCredential(tenant, clientID,
		cloudtest.FederatedCredential{Issuer: issuer.URL(), Subject: subject,
			Audience: azure.DefaultAudience, Fetch: issuer.HTTPClient()})
	// Google Cloud: a provider of a workload identity pool. The ServiceAccount
	// itself has roles.
	cloud.GCP().SetWorkloadIdentityProvider(pool,
		cloudtest.WorkloadIdentityProvider{Issuer: issuer.URL(), Fetch: issuer.HTTPClient()})
	// OAuth: a server that trusts the issuer and grants a scope.
	oauth := cloud.OAuth()
	oauth.AddIssuer(issuer.URL(), issuer.HTTPClient(), oauth.URL())
	oauth.AddGrant(cloudtest.OAuthGrant{Issuer: issuer.URL(), Subjects: []string{subject},
		Scopes: []string{"reports.read"}})

	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	kube := issuer.Wrap(fake.NewFakeClient(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "1",
			Annotations: map[string]string{
				aws.RoleARNAnnotation:                  roleARN,
				azure.ClientIDAnnotation:               clientID,
				azure.TenantIDAnnotation:               tenant,
				gcp.WorkloadIdentityProviderAnnotation: pool,
			}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "report"},
			Data: map[string]string{"serviceAccountName": "app",
				"region": "eu-central-1", "cluster": eks, "repository": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/app"}}))
	return &Reconciler{Client: kube, AWS: &aws.Provider{}, Azure: &azure.Provider{}, Google: &gcp.Provider{},
			OAuth:  &exchange.Provider{IssuerURL: oauth.URL()},
			Tokens: tokens, Events: events.NewFakeRecorder(10), Options: []auth.Option{auth.WithHTTPClient(cloud.Client())}},
		cloud
}
