package cloudtest

import (
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/azurename"
)

// AzureContainer is a container of Azure Blob Storage. The container $web is
// also the static website of its account, which anonymous requests read at
// <account>.z1.web.core.windows.net.
type AzureContainer struct {
	// Tenant is the tenant of the storage account.
	Tenant string
	// Writers lists the client IDs of the identities that may read and write
	// blobs (Storage Blob Data Contributor).
	Writers []string
}

type azureContainer struct {
	AzureContainer
	blobs map[string]azureBlob
}

type azureBlob struct {
	content []byte
	header  http.Header
}

// SetContainer creates a container, or changes it and keeps its blobs.
func (a *Azure) SetContainer(account, name string, container AzureContainer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.storage[account] == nil {
		a.storage[account] = map[string]*azureContainer{}
	}
	blobs := map[string]azureBlob{}
	if old := a.storage[account][name]; old != nil {
		blobs = old.blobs
	}
	a.storage[account][name] = &azureContainer{container, blobs}
}

// storageAccount returns the account behind a host, if it exists. It reports
// whether the host is the account's website.
func (a *Azure) storageAccount(host string) (account string, website bool) {
	account, domain, _ := strings.Cut(host, ".")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.storage[account] == nil {
		return "", false
	}
	for _, e := range a.environments {
		switch {
		case e.BlobSuffix == "":
		case domain == e.BlobSuffix:
			return account, false
		case domain == "z1.web"+strings.TrimPrefix(e.BlobSuffix, "blob"):
			return account, true
		}
	}
	return "", false
}

func (a *Azure) isStorage(host string) bool {
	account, _ := a.storageAccount(host)
	return account != ""
}

// blobError is an error of Blob storage.
type blobError struct {
	status        int
	code, message string
}

// serveBlobs is the REST API of Blob storage with Get Blob and Put Blob, for
// bearer tokens.
func (a *Azure) serveBlobs(w http.ResponseWriter, r *http.Request, host string) {
	const maxBlob = 2 << 20
	account, website := a.storageAccount(host)
	container, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if website {
		container, name = "$web", strings.TrimPrefix(r.URL.Path, "/")
	}
	action := map[string]string{http.MethodGet: "GetBlob", http.MethodPut: "PutBlob"}[r.Method]
	fault, ok := a.cloud.begin(w, r, Call{Service: "blob", Action: firstOf(action, r.Method+" "+r.URL.Path), Host: host,
		Parameters: map[string]string{"account": account, "container": container, "blob": name}},
		func(f Fault) { a.failBlob(w, r, nil, &blobError{f.Status, f.Code, f.Message}) })
	if !ok {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBlob))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	a.mu.Lock()
	found := a.storage[account][container]
	a.mu.Unlock()
	refused := a.authorizeBlob(r, found, website)
	if refused == nil {
		refused = a.answerBlob(w, r, fault, found, name, body)
	}
	if refused != nil {
		a.failBlob(w, r, fault, refused)
	}
}

func (a *Azure) authorizeBlob(r *http.Request, c *azureContainer, website bool) *blobError {
	if website && r.Method == http.MethodGet {
		return missingContainer(c)
	}
	const oldest = "2017-11-09" // the oldest version that accepts bearer tokens
	identity, ok := a.bearer(bearerOf(r), azurename.StorageAudience)
	switch {
	case website || r.Method != http.MethodGet && r.Method != http.MethodPut:
		return &blobError{http.StatusMethodNotAllowed, "UnsupportedHttpVerb",
			"The resource doesn't support specified Http Verb."}
	case !ok || r.Header.Get("X-Ms-Version") < oldest || c != nil && !a.sameTenant(identity.Tenant, c.Tenant):
		return &blobError{http.StatusUnauthorized, "InvalidAuthenticationInfo",
			"Server failed to authenticate the request. " + "Please refer to the information in the www-authenticate header."}
	case c != nil && !oneOf(c.Writers, identity.ClientID):
		return &blobError{http.StatusForbidden, "AuthorizationPermissionMismatch",
			"This request is not authorized to perform this operation using this permission."}
	}
	return missingContainer(c)
}

func missingContainer(c *azureContainer) *blobError {
	if c == nil {
		return &blobError{http.StatusNotFound, "ContainerNotFound", "The specified container does not exist."}
	}
	return nil
}

func (a *Azure) answerBlob(w http.ResponseWriter, r *http.Request, fault *Fault, c *azureContainer, name string,
	body []byte) *blobError {
	a.mu.Lock()
	blob, exists := c.blobs[name]
	if r.Method == http.MethodGet {
		a.mu.Unlock()
		if !exists {
			return &blobError{http.StatusNotFound, "BlobNotFound", "The specified blob does not exist."}
		}
		a.blobHeader(w)
		maps.Copy(w.Header(), blob.header)
		fault.send(w, r, a.cloud.closing, http.StatusOK, blob.content)
		return nil
	}
	etag := `"0x` + strings.ToUpper(hexSum([]byte(uuid.NewString()))[:15]) + `"` // every write makes a new one
	refused := checkBlob(r, blob, exists)
	if refused == nil {
		c.blobs[name] = azureBlob{body,
			http.Header{"Etag": {etag}, "Cache-Control": slices.Clone(r.Header["X-Ms-Blob-Cache-Control"]),
				"Content-Type": {firstOf(r.Header.Get("X-Ms-Blob-Content-Type"), "application/octet-stream")}}}
	}
	a.mu.Unlock()
	if refused != nil {
		return refused
	}
	a.blobHeader(w)
	w.Header().Set("ETag", etag)
	fault.send(w, r, a.cloud.closing, http.StatusCreated, nil)
	return nil
}

// checkBlob returns the answer to a conditional write.
func checkBlob(r *http.Request, blob azureBlob, exists bool) *blobError {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case r.Header.Get("X-Ms-Blob-Type") != "BlockBlob":
		return &blobError{http.StatusBadRequest, "MissingRequiredHeader",
			"An HTTP header that's mandatory for this request is not specified."}
	case none == "*" && exists:
		return &blobError{http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists."}
	case match != "" && (!exists || match != blob.header.Get("Etag")):
		return &blobError{http.StatusPreconditionFailed, "ConditionNotMet",
			"The condition specified using HTTP conditional header(s) is not met."}
	}
	return nil
}

func (a *Azure) blobHeader(w http.ResponseWriter) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	w.Header().Set("Date", a.cloud.time().UTC().Format(http.TimeFormat))
}

func (a *Azure) failBlob(w http.ResponseWriter, r *http.Request, fault *Fault, err *blobError) {
	body, _ := xml.Marshal(struct { // strings always encode
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: err.code, Message: err.message})
	a.blobHeader(w)
	w.Header().Set("x-ms-error-code", err.code)
	w.Header().Set("Content-Type", "application/xml")
	if err.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate",
			`Bearer authorization_uri=https://login.microsoftonline.com/common/oauth2/authorize resource_id=https://storage.azure.com`)
	}
	fault.send(w, r, a.cloud.closing, err.status, append([]byte(xml.Header), body...))
}
