package azure_test

import (
	"context"
	"fmt"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A tenant's ServiceAccount names an application, and clients of the Azure SDK
// act as it. In production the HTTP client is left out.
func Example() {
	const tenant, application = "72f988bf-86f1-41af-91ab-2d7cd011db47", "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
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
	cloud.Azure().AddTenant("login.microsoftonline.com", tenant)
	cloud.Azure().AddFederatedCredential(tenant, application, cloudtest.FederatedCredential{Issuer: issuer.URL(),
		Subject: "system:serviceaccount:tenant-a:app", Audience: azure.DefaultAudience, Fetch: issuer.HTTPClient()})

	credential := azure.NewTokenCredential( // for any client of the Azure SDK
		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"},
			issuer.Client(boundAccount("tenant-a", tenant, application))),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}),
		auth.WithHTTPClient(cloud.Client()))
	token, err := credential.GetToken(context.Background(), policy.TokenRequestOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	identity, _ := cloud.Azure().Identity(token.Token)
	fmt.Println(identity.ClientID == application, identity.Subject)
	// Output: true system:serviceaccount:tenant-a:app
}

// bindings serves all tenants of the controller's AKS cluster.
var bindings = &azure.Provider{IdentityBindings: true}

// AKS names the token proxy in the environment of the pod. Here cloudtest has
// one, which grants the identity to one tenant.
func ExampleProvider_identityBindings() {
	const tenant, identity = "72f988bf-86f1-41af-91ab-2d7cd011db47", "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	cluster, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy, err := cloud.Azure().NewTokenProxy(cluster.URL(), cluster.HTTPClient())
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy.SetRight(tenant, identity, "system:serviceaccount:tenant-a:app")
	for name, value := range proxy.Env() {
		_ = os.Setenv(name, value) // the names are valid
		defer os.Unsetenv(name)    //nolint:errcheck // the same
	}

	kube := cluster.Client(boundAccount("tenant-a", tenant, identity), boundAccount("tenant-b", tenant, identity))
	for _, namespace := range []string{"tenant-a", "tenant-b"} {
		_, err := auth.GetAccessToken(context.Background(), bindings,
			auth.WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: "app"}, kube),
			auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: namespace, Name: "b"}))
		fmt.Println(namespace, "was refused:", err != nil)
	}
	// Output:
	// tenant-a was refused: false
	// tenant-b was refused: true
}

func boundAccount(namespace, tenant, identity string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app",
		Annotations: map[string]string{azure.ClientIDAnnotation: identity, azure.TenantIDAnnotation: tenant}}}
}
