package exchange

// NewKeycloak returns a [Provider] for a realm of Keycloak, such as
// https://login.example.com/realms/one, and for any OpenID provider with
// federated clients. The realm needs a Kubernetes identity provider with the
// cluster's issuer, and a client for each ServiceAccount. The client has the
// authenticator "Signed JWT - Federated" and the subject
// system:serviceaccount:<namespace>:<name>.
//
// The audience of the ServiceAccount's token is the realm's URL. The realm
// refuses tokens that live longer than an hour. The token endpoint comes from
// the realm's metadata. The realm finds the client by issuer and subject, so no
// annotation is needed.
func NewKeycloak(realmURL string) *Provider {
	return &Provider{Name: "keycloak", IssuerURL: realmURL, Grant: GrantClientCredentials,
		service: oauthForm{name: "Keycloak"}}
}
