// Package aws examines the trust policy of a role, because STS has one answer
// for all its mistakes. A Reader asks AWS with the login of the person who runs
// the doctor, never with the ServiceAccount's, and only reads.
//
// Of a trust policy, the package checks StringEquals and StringLike on sub and
// aud of the token's issuer. A Deny, and every other condition, makes the
// finding Unknown if the result depends on it. Permission boundaries and SCPs
// are not read.
package aws
