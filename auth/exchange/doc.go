// Package exchange turns ServiceAccounts into tokens of any service that trusts
// the cluster's issuer, for controllers that call such a service as a tenant.
// OAuth 2.0 authorization servers accept a token exchange (RFC 8693) or an
// assertion (RFC 7523, see [Grant]). Other services have a form of their own.
// The example of [Provider.NewTransport] calls a service with the tokens of an
// authorization server.
//
// A constructor knows each of these: [NewAnthropic], [NewConfluent],
// [NewDatabricks], [NewDockerHub], [NewKeycloak], [NewOctoSTS], [NewOpenAI],
// [NewQuay], [NewTailscale] and [NewVault]. Its comment says what has to be set
// up there. For other servers, fill in a [Provider].
//
// The server trusts the cluster's token issuer and decides what each
// ServiceAccount may get: its subject token has the subject
// system:serviceaccount:<namespace>:<name>. The controller configures
// everything. A tenant chooses the values of [Provider.AnnotatedParameters]
// alone, and no endpoint, header, audience or other parameter.
//
// [auth.GetAccessToken] returns a token for the scopes of [auth.WithScopes].
// With [Provider.NewTransport] an [http.Client] gets its tokens from the
// provider, for the named hosts and no others.
//
// # Trust
//
// Either [Provider.Endpoint] names the token endpoint, or [Provider.IssuerURL]
// the server whose metadata (RFC 8414, or OpenID Connect Discovery) name it.
// Both are https URLs. The endpoint receives ServiceAccount tokens and the
// client's secret, so metadata must name the configured issuer. Their token
// endpoint must have the issuer's host and port, or one that
// [Provider.AllowedEndpointHosts] lists.
//
// Many servers require the controller to authenticate as a client (RFC 6749,
// section 2.3): [PublicClient], [ClientSecretBasic], and
// [ServiceAccountAssertion] (RFC 7521), where the controller's own
// ServiceAccount is the client.
//
// [Provider.Audience] (RFC 8693) and [Provider.Resource] (RFC 8707) name the
// service that accepts the token. A caller may choose others with
// [WithAudience] and [WithResource] only if the provider lists them. With a
// free choice, a tenant could get a token for a service that the controller
// never meant.
//
// A scope that the server does not grant is an error ([auth.ErrDenied]).
// Refresh tokens are never kept: the ServiceAccount's token suffices, and it
// expires with the ServiceAccount.
package exchange
