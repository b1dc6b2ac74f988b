// Package directory keeps the documents of an issuer in a directory that a web
// server serves, for programs that run an [issuer.Publisher]. The example of
// package issuer publishes to one.
//
// The files have no extension: set their content types in the server,
// /.well-known/openid-configuration to application/json and /openid/v1/jwks to
// application/jwk-set+json. It caches neither for longer than five minutes.
package directory
