package clouds_test

import (
	"context"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	sdkblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"golang.org/x/oauth2"
	"google.golang.org/api/iam/v1"
	"google.golang.org/api/option"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/azblob"
	"github.com/workloadid/workloadid/issuer/gcppool"
)

const keySet = `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"a","n":"sXch","e":"AQAB"}]}`

// The SDK of Blob storage sees the file and the version that the store sees.
func TestBlobSDKAndStoreShareFiles(t *testing.T) {
	cloud, id := testenv.Cloud(t), azureClient
	cloud.Azure().SetClientSecret(azureTenant, id, "a-client-secret")
	cloud.Azure().SetContainer(blobAccount, "$web", cloudtest.AzureContainer{Tenant: azureTenant, Writers: []string{id}})
	options := azcore.ClientOptions{Transport: cloud.Client(), Retry: policy.RetryOptions{MaxRetries: -1}}
	credential, err := azidentity.NewClientSecretCredential(azureTenant, id, "a-client-secret",
		&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := azblob.Open(blobAccount, "$web",
		azblob.Options{Prefix: "cluster-1", Credential: credential, HTTPClient: cloud.Client()})
	if err != nil {
		t.Fatal(err)
	}
	sdk, err := sdkblob.NewClient("https://"+blobAccount+".blob.core.windows.net", credential,
		&sdkblob.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	upload := func(content, version string) error {
		conditions := &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(version))}
		if version == "" {
			conditions = &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}
		}
		_, err := sdk.UploadBuffer(t.Context(), "$web", "cluster-1/"+issuer.KeysFile, []byte(content),
			&sdkblob.UploadBufferOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: conditions}})
		return err
	}
	if err := store.Write(t.Context(), issuer.KeysFile, []byte("one"), ""); err != nil {
		t.Fatal(err)
	}
	if err := upload("two", ""); !bloberror.HasCode(err, bloberror.BlobAlreadyExists) {
		t.Errorf("created twice: %v", err)
	}
	_, version, err := store.Read(t.Context(), issuer.KeysFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := upload("two", version); err != nil {
		t.Fatal(err)
	}
	if err := upload("three", version); !bloberror.HasCode(err, bloberror.ConditionNotMet) {
		t.Errorf("old version: %v", err)
	}
	answer, err := sdk.DownloadStream(t.Context(), "$web", "cluster-1/"+issuer.KeysFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // nothing was written
	if content, version, err := store.Read(t.Context(), issuer.KeysFile); err != nil || string(content) != "two" ||
		version != string(*answer.ETag) {
		t.Errorf("%q, %q, %v; the SDK has version %q", content, version, err, *answer.ETag)
	}
}

// The SDK of the IAM API sees the keys that the store uploads, and the other
// way round.
func TestIAMSDKAndStoreShareKeys(t *testing.T) {
	cloud := testenv.Cloud(t)
	const email = "publisher@my-project.iam.gserviceaccount.com"
	cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
		cloudtest.WorkloadIdentityProvider{Issuer: "https://kubernetes.default.svc",
			Admins: []string{"serviceAccount:" + email}})
	source := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: cloud.GCP().IssueAccessToken(email)})
	store, err := gcppool.Open(gcpProvider, gcppool.Options{TokenSource: source, HTTPClient: cloud.Client()})
	if err != nil {
		t.Fatal(err)
	}
	api, err := iam.NewService(t.Context(),
		option.WithHTTPClient(oauth2.NewClient(context.WithValue(t.Context(), oauth2.HTTPClient, cloud.Client()), source)))
	if err != nil {
		t.Fatal(err)
	}
	pools := api.Projects.Locations.WorkloadIdentityPools.Providers
	operation, err := pools.Patch(gcpProvider,
		&iam.WorkloadIdentityPoolProvider{Oidc: &iam.Oidc{JwksJson: keySet}}).UpdateMask("oidc.jwksJson").Do()
	if err != nil {
		t.Fatal(err)
	}
	if operation, err = pools.Operations.Get(operation.Name).Do(); err != nil || !operation.Done {
		t.Fatalf("the operation is %+v, %v, want it done", operation, err)
	}
	content, version, err := store.Read(t.Context(), issuer.KeysFile)
	if err != nil || string(content) != keySet {
		t.Fatalf("got %s, %v, want %s", content, err, keySet)
	}
	if err := store.Write(t.Context(), issuer.KeysFile, []byte(`{"keys":[]}`), version); err != nil {
		t.Fatal(err)
	}
	if p, err := pools.Get(gcpProvider).Do(); err != nil || p.Oidc.JwksJson != `{"keys":[]}` {
		t.Errorf("got %+v, %v, want the keys of the store", p, err)
	}
}
