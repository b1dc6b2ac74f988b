package clouds_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/workloadid/workloadid/auth/authtest"
)

// fakeBlob is a blob of Azure Blob Storage.
type fakeBlob struct {
	// Tenant is that of the storage account.
	Tenant string
	// Readers are the client IDs of the identities that may read the blob.
	Readers []string
	Content string
	// Claims, a JSON object, make requests fail with a challenge until the token was requested with them.
	Claims string
}

// fakeBlobs serves GET of the blobs of one storage account.
type fakeBlobs struct {
	azure *authtest.Azure

	mu    sync.Mutex
	blobs map[string]fakeBlob
}

// newFakeBlobs serves a storage account at its production host.
func newFakeBlobs(cloud *authtest.Cloud, account string) *fakeBlobs {
	b := &fakeBlobs{azure: cloud.Azure(), blobs: map[string]fakeBlob{}}
	cloud.Handle(account+".blob.core.windows.net", b)
	return b
}

// Set creates or replaces the blob at a path, /<container>/<name>.
func (b *fakeBlobs) Set(path string, blob fakeBlob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blobs[path] = blob
}

func (b *fakeBlobs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	blob, known := b.blobs[r.URL.Path]
	b.mu.Unlock()
	identity, ok := b.azure.Identity(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	may := false
	for _, id := range blob.Readers {
		may = may || strings.EqualFold(id, identity.ClientID)
	}
	switch {
	case !ok || identity.Audience != "https://storage.azure.com" || known && !strings.EqualFold(identity.Tenant, blob.Tenant):
		failBlob(w, http.StatusUnauthorized, "InvalidAuthenticationInfo")
	case !known:
		failBlob(w, http.StatusNotFound, "BlobNotFound")
	case !may:
		failBlob(w, http.StatusForbidden, "AuthorizationPermissionMismatch")
	case blob.Claims != "" && !strings.Contains(identity.Claims, strings.Trim(blob.Claims, "{}")):
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="", authorization_uri="https://login.microsoftonline.com/common/oauth2/authorize", error="insufficient_claims", claims=%q`,
			base64.StdEncoding.EncodeToString([]byte(blob.Claims))))
		failBlob(w, http.StatusUnauthorized, "InvalidAuthenticationInfo")
	default:
		_, _ = w.Write([]byte(blob.Content)) // a client that has gone needs no answer
	}
}

func failBlob(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("x-ms-error-code", code)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>refused</Message></Error>", code)
}
