// Package authenticator authenticates bootstrap tokens as the API server does,
// for servers of your own ([Authenticator.AuthenticateToken]) and as a webhook
// that answers TokenReviews ([Authenticator.Handler]). The example of the
// package authenticates a joining machine.
//
// An [Authenticator] implements authenticator.Token of k8s.io/apiserver. It
// ignores audiences, because bootstrap tokens are meant for the API server. In
// a server with audiences, wrap it with
// authenticator.WrapAudienceAgnosticToken, as the API server does.
//
// Only the API server may reach the Handler, because it reveals whether a token
// is valid. Use TLS with client certificates, which the kubeconfig of
// --authentication-token-webhook-config-file can hold.
package authenticator
