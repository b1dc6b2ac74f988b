// Package directory keeps the documents of an issuer in a directory that a web
// server serves, for programs that run an [issuer.Publisher]. The example of
// package issuer publishes to one.
//
// The files have no extension, so set their content types in the server:
// /.well-known/openid-configuration is application/json, and /openid/v1/jwks is
// application/jwk-set+json. The server must not let clients cache either for
// longer than five minutes.
package directory
