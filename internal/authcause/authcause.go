// Package authcause holds the values of provider.Cause, for packages auth and its providers and for the doctor.
package authcause

// The comment of provider.Cause documents each of them.
const (
	IdentityMissing        = "IdentityMissing"
	IdentityMalformed      = "IdentityMalformed"
	TargetMalformed        = "TargetMalformed"
	NoOwnIdentity          = "NoOwnIdentity"
	AudienceNotAllowed     = "AudienceNotAllowed"
	APIServerAudience      = "APIServerAudience"
	TokenExpired           = "TokenExpired"
	TokenFileForbidden     = "TokenFileForbidden"
	TokenRequestForbidden  = "TokenRequestForbidden"
	ServiceAccountNotFound = "ServiceAccountNotFound"
	MetadataServer         = "MetadataServer"
)
