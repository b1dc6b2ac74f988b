// Package issuer makes a cluster's issuer of ServiceAccount tokens public, so
// that clouds can verify its tokens. A [Publisher] publishes the OpenID Connect
// discovery document and the keys, and follows the rotation of keys. [Verify]
// compares the published documents with the API server. The package is for
// clusters of kubeadm, k3s, RKE2 and Talos. EKS, GKE and AKS publish their
// issuers themselves.
//
// The example of the package publishes to a directory, and adds the new key
// after a rotation. Packages s3, azblob, gcppool and directory keep the
// documents; each has a [Store]. A program calls [Publisher.Publish] once, or
// adds the Publisher to a manager, which publishes every minute.
//
// # What is published
//
// The Publisher makes the discovery document itself, because the API server
// names its own address in it. Keys come from the API server, RSA and EC public
// keys only. Both files have the paths that a cluster with an issuer uses:
// /.well-known/openid-configuration and /openid/v1/jwks below the issuer.
//
// # Rotation
//
// Each publication reads the keys of the API server and publishes all of them.
// It unpublishes a key that no read has returned for
// [Publisher.MaxTokenLifetime], so no valid token loses its key. Gaps of more
// than ten minutes between reads do not count. So a publisher that runs less
// often adds keys and never removes one.
//
// The record of keys lies beside the documents, and is written before them.
// Writes are conditional, so any number of publishers may share a [Store].
// Publishers adopt the keys that another tool has published.
//
// No token is lost in this order:
//
//  1. Give the new public key to every API server
//     (--service-account-key-file).
//  2. Wait until it is published and the clouds have read it.
//  3. Switch signing (--service-account-signing-key-file).
//  4. Remove the old public key.
package issuer
