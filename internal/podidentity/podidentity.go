// Package podidentity holds the names that the webhook, the proxy, the server
// and the doctor share.
package podidentity

import (
	"encoding/json"
	"net/http"
)

// Path is the path of the credentials, on the server and on the proxy.
const Path = "/v1/credentials"

// LinkLocal is the address that SDKs use for
// AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, on port 80.
const LinkLocal = "169.254.170.2"

// Names in an injected pod.
const (
	ProxyContainer    = "iam-credentials-proxy"
	RedirectContainer = "iam-credentials-redirect"
	TokenVolume       = "iam-credentials-token"
)

// Reasons of the conditions of an IAMBinding, which are also codes of the
// server's answers. The comments of the conditions in package v1alpha1 document
// them.
const (
	ReasonAccepted       = "Accepted"
	ReasonConflict       = "Conflict"
	ReasonNoConflict     = "NoConflict"
	ReasonRoleNotAllowed = "RoleNotAllowed"
	ReasonNotBound       = "NotBound"
	ReasonAssumed        = "Assumed"
	ReasonNotAccepted    = "NotAccepted"
)

// Error is the body of an answer without credentials.
type Error struct{ Code, Message string }

// Write answers in the container-credentials protocol. It writes no charset:
// the Go SDK reads no reason from an answer with one.
func Write(w http.ResponseWriter, status int, body any) {
	content, _ := json.Marshal(body) // texts alone cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(content) // the client is gone if this fails
}
