// Package exchange turns ServiceAccounts into tokens of any OAuth 2.0 authorization server, by token exchange (RFC 8693).
//
// The server trusts the cluster's token issuer and decides what each ServiceAccount may get: its subject token has the
// subject system:serviceaccount:<namespace>:<name>. Tenants configure nothing, the controller everything:
//
//	provider := &exchange.Provider{ // one for the whole controller
//		IssuerURL: "https://login.example.com",
//		Audience:  "https://api.example.com",
//		Client:    exchange.ClientSecretBasic("controller", readSecret),
//	}
//
//	token, err := auth.GetAccessToken(ctx, provider,
//		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
//		auth.WithCache(tokenCache, object),
//		auth.WithScopes("read"))
//
// An http.Client gets its tokens from the provider, for the hosts that are named and no others:
//
//	transport, err := provider.NewTransport(nil, []string{"api.example.com"},
//		auth.WithServiceAccount(...), auth.WithCache(tokenCache, object))
//	httpClient := &http.Client{Transport: transport}
//
// # The address of the server
//
// Either Endpoint names the token endpoint, or IssuerURL the server whose metadata (RFC 8414, or OpenID Connect Discovery)
// name it. Both are https URLs. Metadata are believed only if they name the very issuer that was configured, and a token
// endpoint only if it is at the issuer's host and port, or at one that Provider.AllowedEndpointHosts lists: the
// ServiceAccounts' tokens and the client's secret go there.
//
// # The controller as a client
//
// Many servers want to know which client asks (RFC 6749, section 2.3): PublicClient, ClientSecretBasic, ClientSecretPost,
// PrivateKeyJWT (RFC 7523), and ServiceAccountAssertion (RFC 7521), where the controller's own ServiceAccount is the client.
//
// # What tokens are good for
//
// Audience (RFC 8693) and Resource (RFC 8707) tell the server for which service the token is meant. A caller may choose
// others with WithAudience and WithResource only if the provider lists them: a tenant who chose freely could have a token
// issued for a service that the controller never meant.
//
// Scopes that the server did not grant are an error (ErrDenied), because the answer has to tell if they differ from those
// asked for (RFC 6749, section 5.1). Refresh tokens are never kept: the ServiceAccount's token is all that is needed, and it
// ends with the ServiceAccount.
package exchange
