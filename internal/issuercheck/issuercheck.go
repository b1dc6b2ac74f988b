// Package issuercheck holds the names of the checks of issuer.Verify, for package issuer and for the doctor.
package issuercheck

import "strings"

// The comment of issuer.Check.Name documents each of them.
const (
	TokenReview   = "TokenReview"
	IssuerOfToken = "IssuerOfToken"
	IssuerURL     = "IssuerURL"
	IssuerPublic  = "IssuerPublic"
	Reachable     = "DiscoveryReachable"
	Public        = "DiscoveryPublic"
	Anonymous     = "DiscoveryAnonymous"
	Discovery     = "DiscoveryDocument"
	SameIssuer    = "DiscoveryIssuer"
	KeysReachable = "KeysReachable"
	KeysPublic    = "KeysPublic"
	ContentType   = "ContentType"
	KeySet        = "KeySet"
	KeysOfCluster = "KeysOfCluster"
	ForeignKeys   = "ForeignKeys"
	SigningKey    = "SigningKey"
	Signature     = "Signature"
	Algorithm     = "Algorithm"
	TokenLifetime = "TokenLifetime"
)

// Difference names a difference between issuers that is easy to overlook. It is empty for others.
func Difference(a, b string) string {
	switch {
	case a == b:
		return ""
	case strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/"):
		return "; they differ only by the / at the end"
	case strings.EqualFold(a, b):
		return "; they differ in upper and lower case"
	}
	return ""
}
