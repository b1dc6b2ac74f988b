package bootstrap

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// Cause names the reason why the discovery at an address failed.
type Cause string

// The values of [Cause].
const (
	CauseServerUnreachable    Cause = "ServerUnreachable"    // no answer
	CauseNotAnAPIServer       Cause = "NotAnAPIServer"       // another program answers
	CauseServerStarting       Cause = "ServerStarting"       // status 429 or 5xx
	CauseAnonymousRefused     Cause = "AnonymousRefused"     // the API server refuses anonymous requests
	CauseAnonymousForbidden   Cause = "AnonymousForbidden"   // anonymous requests may not read cluster-info
	CauseNotPublished         Cause = "NotPublished"         // cluster-info is missing, or has no kubeconfig
	CauseClusterInfoMalformed Cause = "ClusterInfoMalformed" // ParseClusterInfo refuses the content
	CauseNotSignedForToken    Cause = "NotSignedForToken"    // signed for other tokens only
	CauseNotSigned            Cause = "NotSigned"            // signed for no token
	CauseSignatureWrong       Cause = "SignatureWrong"       // wraps ErrSignature if it is final
	CauseCANotPinned          Cause = "CANotPinned"          // the cluster has no pinned CA; wraps ErrPins
	// CauseContentDiffers means that the verified answer differs from the
	// signed one. It wraps ErrPins.
	CauseContentDiffers Cause = "ContentDiffers"
	// CauseCertificateForAnotherName means that the server's certificate does
	// not name the address. It wraps ErrPins.
	CauseCertificateForAnotherName Cause = "CertificateForAnotherName"
	// CauseCertificateOfAnotherCA means that no pinned CA signed the server's
	// certificate. It wraps ErrPins.
	CauseCertificateOfAnotherCA Cause = "CertificateOfAnotherCA"
	CauseCertificateNotValidNow Cause = "CertificateNotValidNow" // by the clock of this machine, so Discover waits
)

// AddressError is the failure of the discovery at one address.
type AddressError struct {
	// Address is the https URL that was asked.
	Address string
	Cause   Cause
	// CAs are the CAs that cluster-info names, with the cause CANotPinned.
	CAs []*x509.Certificate
	// Err is the reason. It wraps ErrSignature, ErrPins or the context's error.
	Err error
	// likely names the likely origins of a failure that may pass by itself.
	likely string
}

// Error implements error.
func (e *AddressError) Error() string { return e.Address + ": " + e.text() }

func (e *AddressError) text() string {
	if e.likely == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "; " + e.likely
}

// Unwrap returns Err.
func (e *AddressError) Unwrap() error { return e.Err }

// DiscoveryError is the failure of [Discover] at all addresses, in the order in
// which they failed.
type DiscoveryError struct{ Addresses []*AddressError }

// Error implements error. The text has one line.
func (e *DiscoveryError) Error() string {
	texts := make([]string, len(e.Addresses))
	for i, a := range e.Addresses {
		texts[i] = a.Error()
	}
	return "discover cluster at " + strings.Join(texts, "; ")
}

// Unwrap returns the Addresses.
func (e *DiscoveryError) Unwrap() []error {
	all := make([]error, len(e.Addresses))
	for i, a := range e.Addresses {
		all[i] = a
	}
	return all
}

func final(cause Cause, format string, args ...any) *AddressError {
	return &AddressError{Cause: cause, Err: fmt.Errorf(format, args...)}
}

// waiting returns a failure that may pass by itself.
func waiting(cause Cause, reason, likely string) *AddressError {
	return &AddressError{Cause: cause, Err: errors.New(reason), likely: likely}
}
