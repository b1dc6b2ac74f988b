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
// The Publisher publishes every key that a look at the API server shows. It
// unpublishes a key once no look has shown it for [Publisher.MaxTokenLifetime],
// so no valid token loses its key. Gaps of more than ten minutes between looks
// do not count. So a publisher that runs less often adds keys and never removes
// one.
//
// The record of keys lies beside the documents, and is written before them.
// Writes are conditional, so any number of publishers may share a [Store].
// Publishers adopt the keys that another tool has published.
//
// No token is lost in this order: give the new public key to every API server
// (--service-account-key-file); wait until it is published and the clouds have
// read it; switch signing (--service-account-signing-key-file); remove the old
// public key.
package issuer
