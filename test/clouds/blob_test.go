package clouds_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// blobStore is an account of Blob storage with one container, which a tenant
// may use.
type blobStore struct {
	*testenv.Environment
	// claims, a JSON object, are those that tokens have to be requested with.
	claims string
}

// newAzure returns a cluster whose ServiceAccount app of tenant-a has an
// identity in Azure.
func newAzure(t *testing.T) *testenv.Environment {
	t.Helper()
	w := testenv.New(t, testenv.ServiceAccount("tenant-a", "app", azure.ClientIDAnnotation, azureClient,
		azure.TenantIDAnnotation, azureTenant))
	w.Cloud.Azure().AddFederatedCredential(azureTenant, azureClient, cloudtest.FederatedCredential{Issuer: w.Issuer.URL(),
		Subject: testenv.Subject("tenant-a", "app"), Audience: azure.DefaultAudience, Fetch: w.Issuer.HTTPClient()})
	return w
}

func newBlobStore(t *testing.T) *blobStore {
	t.Helper()
	s := &blobStore{Environment: newAzure(t)}
	s.Cloud.Azure().SetContainer(blobAccount, "container", cloudtest.AzureContainer{Tenant: azureTenant,
		Writers: []string{azureClient}})
	return s
}

// Do sends requests to Blob storage, and answers with a challenge itself while
// the token lacks the claims.
func (s *blobStore) Do(r *http.Request) (*http.Response, error) {
	identity, _ := s.Cloud.Azure().Identity(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if strings.Contains(identity.Claims, strings.Trim(s.claims, "{}")) {
		return s.Cloud.Client().Do(r)
	}
	challenge := `Bearer realm="", authorization_uri="https://login.microsoftonline.com/common/oauth2/authorize", ` +
		`error="insufficient_claims", ` +
		`claims="` + base64.StdEncoding.EncodeToString([]byte(s.claims)) + `"`
	return &http.Response{StatusCode: http.StatusUnauthorized, Request: r, Body: http.NoBody,
		Header: http.Header{"Www-Authenticate": {challenge}}}, nil
}

// client returns the SDK's own client of Blob storage, with the credential of
// the tenant.
func (s *blobStore) client(t *testing.T) *azblob.Client {
	t.Helper()
	opts := s.Options("tenant-a", "app", testenv.Cached(t, "tenant-a"))
	c, err := azblob.NewClient("https://"+blobAccount+".blob.core.windows.net", azure.NewTokenCredential(opts...),
		&azblob.ClientOptions{
			ClientOptions: azcore.ClientOptions{Transport: s, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func download(ctx context.Context, client *azblob.Client) (string, error) {
	answer, err := client.DownloadStream(ctx, "container", "some/blob.txt", nil)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(answer.Body)
	return string(content), errors.Join(err, answer.Body.Close())
}

// checkBlob writes a blob and reads it n times.
func checkBlob(t *testing.T, client *azblob.Client, n int) {
	t.Helper()
	if _, err := client.UploadBuffer(t.Context(), "container", "some/blob.txt", []byte("hello"), nil); err != nil {
		t.Fatal(err)
	}
	for range n {
		if content, err := download(t.Context(), client); err != nil || content != "hello" {
			t.Fatalf("got %q, %v, want hello", content, err)
		}
	}
}

// After a challenge with claims (continuous access evaluation), the SDK
// requests another token with these claims.
func TestBlobStorageWithClaims(t *testing.T) {
	s := newBlobStore(t)
	c := s.client(t)
	checkBlob(t, c, 1)
	s.claims = `{"access_token":{"nbf":{"essential":true,"value":"1604106651"}}}`
	checkBlob(t, c, 2)
	if n := s.Cloud.Calls("entra", "token"); n != 2 {
		t.Errorf("%d exchanges for two kinds of claims, want 2", n)
	}
}
