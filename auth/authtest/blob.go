package authtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/azurename"
)

// serveBlob serves GET of whole blobs.
func (a *Azure) serveBlob(w http.ResponseWriter, r *http.Request, host string) {
	call := Call{Service: "blob", Action: "GetBlob", Host: host, Parameters: map[string]string{"path": r.URL.Path}}
	w.Header().Set("x-ms-request-id", uuid.NewString())
	w.Header().Set("x-ms-version", "2021-12-02")
	fault, ok := a.cloud.begin(w, r, call, func(f Fault) { a.failBlob(w, r, nil, f.Status, f.Code, f.Message) })
	if !ok {
		return
	}
	a.mu.Lock()
	blob, known := a.blobs[strings.ToLower(host)+r.URL.Path]
	a.mu.Unlock()
	identity, ok := a.bearer(bearerOf(r), azurename.StorageAudience)
	switch {
	case r.Header.Get("Authorization") == "":
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer authorization_uri=https://login.microsoftonline.com/%s/oauth2/authorize resource_id=%s", blob.Tenant, azurename.StorageAudience))
		a.failBlob(w, r, fault, http.StatusUnauthorized, "NoAuthenticationInformation", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.")
	case !ok || known && !a.sameTenant(identity.Tenant, blob.Tenant):
		a.failBlob(w, r, fault, http.StatusUnauthorized, "InvalidAuthenticationInfo", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.")
	case r.Method != http.MethodGet:
		a.failBlob(w, r, fault, http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb.")
	case !known:
		a.failBlob(w, r, fault, http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	case !oneOf(blob.Readers, identity.ClientID):
		a.failBlob(w, r, fault, http.StatusForbidden, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission.")
	case blob.Claims != "" && !strings.Contains(identity.Claims, strings.Trim(blob.Claims, "{}")):
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="", authorization_uri="https://login.microsoftonline.com/common/oauth2/authorize", error="insufficient_claims", claims=%q`,
			base64.StdEncoding.EncodeToString([]byte(blob.Claims))))
		a.failBlob(w, r, fault, http.StatusUnauthorized, "InvalidAuthenticationInfo", "Continuous access evaluation resulted in challenge.")
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("x-ms-blob-type", "BlockBlob")
		fault.send(w, r, a.cloud.closing, http.StatusOK, blob.Content)
	}
}

// failBlob answers in XML with the code in a header too.
func (a *Azure) failBlob(w http.ResponseWriter, r *http.Request, fault *Fault, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("x-ms-error-code", code)
	body := `<?xml version="1.0" encoding="utf-8"?>` + element("Error", "", element("Code", code), element("Message", message)).plainXML()
	fault.send(w, r, a.cloud.closing, status, []byte(body))
}

// plainXML has no namespace.
func (n node) plainXML() string {
	var b strings.Builder
	n.writeXML(&b, "", "")
	return b.String()
}
