package azure_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

const (
	storageAccount = "https://account.blob.core.windows.net"
	storedBlob     = "/container/some/blob.txt"
)

func (w *world) blobs(t *testing.T, credential azcore.TokenCredential) *azblob.Client {
	t.Helper()
	client, err := azblob.NewClient(storageAccount, credential, &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: w.http, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func download(ctx context.Context, client *azblob.Client) (string, error) {
	answer, err := client.DownloadStream(ctx, "container", "some/blob.txt", nil)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(answer.Body)
	return string(content), errors.Join(err, answer.Body.Close())
}

// The SDK's own client of Blob storage works with the credential: each tenant reads what he may, and nothing else.
func TestBlobStorage(t *testing.T) {
	clearEnvironment(t)
	w := newWorld(t)
	testworld.NewBlobs(w.cloud, "account").Set(storedBlob, testworld.Blob{Tenant: tenantID, Readers: []string{clientA}, Content: "hello"})
	tokens, p := testworld.Cache(t), &azure.Provider{}
	a := w.blobs(t, p.NewTokenCredential(w.options("tenant-a", "app", auth.WithCache(tokens, object("tenant-a")))...))
	for range 3 {
		if content, err := download(t.Context(), a); err != nil || content != "hello" {
			t.Fatalf("%q, %v", content, err)
		}
	}
	if n := w.cloud.Calls("entra", "token"); n != 1 {
		t.Errorf("%d exchanges for three downloads", n)
	}
	b := w.blobs(t, p.NewTokenCredential(w.options("tenant-b", "app", auth.WithCache(tokens, object("tenant-b")))...))
	if _, err := download(t.Context(), b); !bloberror.HasCode(err, bloberror.AuthorizationPermissionMismatch) {
		t.Errorf("tenant B: %v", err)
	}
	w.cloud.Azure().RemoveFederatedCredentials(tenantID, clientB)
	_, err := download(t.Context(), w.blobs(t, azure.NewTokenCredential(w.options("tenant-b", "app")...)))
	testworld.CheckError(t, err, auth.ErrDenied, "AADSTS70025")
}

// A challenge with claims (continuous access evaluation) gets the SDK a new token, with these claims.
func TestBlobStorageWithClaims(t *testing.T) {
	clearEnvironment(t)
	w := newWorld(t)
	tokens := testworld.Cache(t)
	blobs, blob := testworld.NewBlobs(w.cloud, "account"), testworld.Blob{Tenant: tenantID, Readers: []string{clientA}, Content: "hello"}
	blobs.Set(storedBlob, blob)
	client := w.blobs(t, azure.NewTokenCredential(w.options("tenant-a", "app", auth.WithCache(tokens, object("tenant-a")))...))
	if _, err := download(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	blob.Claims = `{"access_token":{"nbf":{"essential":true,"value":"1604106651"}}}`
	blobs.Set(storedBlob, blob)
	for range 2 {
		if content, err := download(t.Context(), client); err != nil || content != "hello" {
			t.Fatalf("after the challenge: %q, %v", content, err)
		}
	}
	if n := w.cloud.Calls("entra", "token"); n != 2 {
		t.Errorf("%d exchanges", n)
	}
}

// The SDK's calls end with their context.
func TestBlobStorageCancel(t *testing.T) {
	clearEnvironment(t)
	w := newWorld(t)
	w.cloud.AddFault(authtest.Fault{Service: "entra", Hang: true})
	ctx, _ := testworld.CancelAt(t, w.cloud, "", "")
	if _, err := download(ctx, w.blobs(t, azure.NewTokenCredential(w.options("tenant-a", "app")...))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
