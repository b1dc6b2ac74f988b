// Package identity examines why a ServiceAccount gets no credentials of a
// cloud. The decisive check is "exchange": it performs the exchange that a
// controller would perform, without a cache. The other checks explain its
// failure. Checks lists them.
//
// The token goes to the provider. The issuer's documents are read without
// credentials. Their address comes from the token, so do not examine an
// untrusted party's token where that matters.
package identity
