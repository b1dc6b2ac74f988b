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
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// blobStore is an account of Blob storage with one container, which the tenant
// A may use.
type blobStore struct {
	cloud *cloudtest.Cloud
	kube  *cloudtest.Client
	// claims, a JSON object, are those that tokens have to be requested with.
	claims string
}

// clientIDs are the identities of the tenants.
var clientIDs = map[string]string{"tenant-a": "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08",
	"tenant-b": "4a7272f9-f186-41af-9f84-6a92e32d7cd0"}

func newBlobStore(t *testing.T) *blobStore {
	t.Helper()
	issuer, s := testenv.Issuer(t), &blobStore{cloud: testenv.Cloud(t)}
	s.kube = issuer.Client()
	for namespace, id := range clientIDs {
		account := testenv.ServiceAccount(namespace, "app", azure.ClientIDAnnotation, id, azure.TenantIDAnnotation,
			azureTenant)
		if err := s.kube.Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		s.cloud.Azure().AddFederatedCredential(azureTenant, id, cloudtest.FederatedCredential{Issuer: issuer.URL(),
			Subject: "system:serviceaccount:" + namespace + ":app", Audience: azure.DefaultAudience, Fetch: issuer.HTTPClient()})
	}
	s.cloud.Azure().SetContainer(blobAccount, "container", cloudtest.AzureContainer{Tenant: azureTenant,
		Writers: []string{clientIDs["tenant-a"]}})
	return s
}

// Do sends requests to Blob storage, and answers with a challenge itself while
// the token lacks the claims.
func (s *blobStore) Do(r *http.Request) (*http.Response, error) {
	identity, _ := s.cloud.Azure().Identity(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if strings.Contains(identity.Claims, strings.Trim(s.claims, "{}")) {
		return s.cloud.Client().Do(r)
	}
	challenge := `Bearer realm="", authorization_uri="https://login.microsoftonline.com/common/oauth2/authorize", ` +
		`error="insufficient_claims", ` +
		`claims="` + base64.StdEncoding.EncodeToString([]byte(s.claims)) + `"`
	return &http.Response{StatusCode: http.StatusUnauthorized, Request: r, Body: http.NoBody,
		Header: http.Header{"Www-Authenticate": {challenge}}}, nil
}

// client returns the SDK's own client of Blob storage, with the credential of a
// tenant.
func (s *blobStore) client(t *testing.T, namespace string) *azblob.Client {
	t.Helper()
	opts := append(optionsOf(s.cloud, s.kube, namespace),
		auth.WithCache(testenv.Cache(t), cache.InvolvedObject{Kind: "Bucket", Namespace: namespace, Name: "b"}))
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
			t.Fatalf("got the content %q and the error %v, want \"hello\"", content, err)
		}
	}
}

// Each tenant reads the blobs that it may read, and no other.
func TestBlobStorage(t *testing.T) {
	s := newBlobStore(t)
	checkBlob(t, s.client(t, "tenant-a"), 3)
	if n := s.cloud.Calls("entra", "token"); n != 1 {
		t.Errorf("%d exchanges for a blob and three downloads", n)
	}
	if _, err := download(t.Context(), s.client(t, "tenant-b")); !bloberror.HasCode(err,
		bloberror.AuthorizationPermissionMismatch) {
		t.Errorf("tenant B: %v", err)
	}
	s.cloud.Azure().RemoveFederatedCredentials(azureTenant, clientIDs["tenant-b"])
	_, err := download(t.Context(), s.client(t, "tenant-b"))
	testenv.CheckError(t, err, auth.ErrDenied, "AADSTS70025")
}

// After a challenge with claims (continuous access evaluation), the SDK
// requests another token with these claims.
func TestBlobStorageWithClaims(t *testing.T) {
	s := newBlobStore(t)
	c := s.client(t, "tenant-a")
	checkBlob(t, c, 1)
	s.claims = `{"access_token":{"nbf":{"essential":true,"value":"1604106651"}}}`
	checkBlob(t, c, 2)
	if n := s.cloud.Calls("entra", "token"); n != 2 {
		t.Errorf("%d exchanges", n)
	}
}
