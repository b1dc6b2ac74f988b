package azblob_test

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/azblob"
)

// A program opens the store and gives it to an issuer.Publisher, which reads
// and writes like this.
func Example() {
	ctx := context.Background()
	cloud, err := cloudtest.NewCloud() // the Azure of this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	cloud.Azure().SetClientSecret(tenant, clientID, secret)
	cloud.Azure().SetContainer("myaccount", "$web",
		cloudtest.AzureContainer{Tenant: tenant, Writers: []string{clientID}})
	credential, err := azidentity.NewClientSecretCredential(tenant, clientID, secret,
		&azidentity.ClientSecretCredentialOptions{
			ClientOptions: azcore.ClientOptions{Transport: cloud.Client()}, DisableInstanceDiscovery: true})
	if err != nil {
		fmt.Println(err)
		return
	}

	store, err := azblob.Open("myaccount", "$web", azblob.Options{Prefix: "cluster-1",
		Credential: credential, // without: from the environment
		HTTPClient: cloud.Client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Write(ctx, issuer.KeysFile, []byte(`{"keys":[]}`), ""); err != nil {
		fmt.Println(err)
		return
	}
	content, _, err := store.Read(ctx, issuer.KeysFile)
	fmt.Println(string(content), err)
	// Output: {"keys":[]} <nil>
}
