package issuer

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
)

// Verification says what Verify compares.
type Verification struct {
	// Cluster is the API server whose tokens are to be verified. Nil skips what needs it.
	Cluster *rest.Config
	// Token is a token of a ServiceAccount. Empty: Verify requests one for the user's own ServiceAccount, or skips what needs it.
	Token string
	// Issuer is the issuer to verify; empty is that of the token. A former issuer during a move differs from the token's.
	Issuer string
	// HTTPClient asks for the documents as a cloud does. Nil is one with the system's CAs, no proxy and no redirect.
	HTTPClient *http.Client
}

// Check is one comparison of Verify.
type Check struct {
	// Name is a constant in CamelCase, such as "IssuerOfToken".
	Name string
	// OK is false if the check failed. Skipped says why it was not made.
	OK      bool
	Skipped string
	// Problem and Remedy are a sentence each. Got and Want hold the line that is wrong and the right one.
	Problem, Remedy, Got, Want string
}

// Verify asks the API server for a token and its keys, and the issuer for its documents as a cloud does, and compares them. The error is
// that of a Verification that cannot be made; failed checks are in the result.
func Verify(ctx context.Context, v Verification) ([]Check, error) { return nil, nil }
