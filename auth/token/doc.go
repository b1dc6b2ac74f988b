// Package token hands out the tokens of Kubernetes ServiceAccounts themselves.
// It serves controllers whose services trust the cluster's token issuer
// directly: other Kubernetes clusters, Vault, a registry of one's own. The
// example of the package gets a token for Vault, and a registry's credentials.
//
// The audience names the service that is to accept the token. The receiver can
// use the token wherever that audience is accepted. So the controller lists the
// audiences that its tenants may choose ([auth.Policy]). Without an audience,
// the address of a remote cluster ([auth.WithClusterAddress]) is the audience.
//
// Registries that trust the issuer receive the token as bearer, or as the
// password of a fixed user ([Provider.Registries]). The audience is the
// registry's host. A tenant reaches only the registries that the controller
// lists, with a token of the tenant's own ServiceAccount. Never list a registry
// whose operator is a tenant, nor one that clients reach over plain http:
// go-containerregistry uses http for localhost, *.local and private addresses.
package token
