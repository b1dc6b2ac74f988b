// Package bootstrapcause holds the values of bootstrap.Cause, for package bootstrap and for the checks of the doctor.
package bootstrapcause

// The comment of bootstrap.Cause documents each of them.
const (
	Unreachable          = "ServerUnreachable"
	NotAPIServer         = "NotAnAPIServer"
	Starting             = "ServerStarting"
	AnonymousRefused     = "AnonymousRefused"
	Forbidden            = "AnonymousForbidden"
	NotPublished         = "NotPublished"
	ClusterInfoMalformed = "ClusterInfoMalformed"
	NotSignedForToken    = "NotSignedForToken"
	NotSigned            = "NotSigned"
	SignatureWrong       = "SignatureWrong"
	CANotPinned          = "CANotPinned"
	ContentDiffers       = "ContentDiffers"
	CertificateName      = "CertificateForAnotherName"
	CertificateCA        = "CertificateOfAnotherCA"
	CertificateTime      = "CertificateNotValidNow"
)
