// Package podidentity holds the names that the webhook, the proxy, the server and the doctor share.
package podidentity

// Path is the path of the credentials, on the server and on the proxy.
const Path = "/v1/credentials"

// LinkLocal is the address that SDKs use for AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, on port 80.
const LinkLocal = "169.254.170.2"

// Names in an injected pod.
const (
	ProxyContainer    = "iam-credentials-proxy"
	RedirectContainer = "iam-credentials-redirect"
	TokenVolume       = "iam-credentials-token"
)

// Reasons of the conditions of an IAMBinding, which are also codes of the server's answers. The comments of the conditions in package
// v1alpha1 document them.
const (
	ReasonAccepted       = "Accepted"
	ReasonConflict       = "Conflict"
	ReasonNoConflict     = "NoConflict"
	ReasonRoleNotAllowed = "RoleNotAllowed"
	ReasonNotBound       = "NotBound"
	ReasonAssumed        = "Assumed"
	ReasonNotAccepted    = "NotAccepted"
)
