// Package issuer makes a cluster's issuer of ServiceAccount tokens public, so that clouds can verify its tokens: it publishes the OpenID
// Connect discovery document and the keys, follows the rotation of keys, and verifies what is published. EKS, GKE and AKS do this by
// themselves; clusters of kubeadm, k3s, RKE2 and Talos need it.
//
//	publisher := &issuer.Publisher{
//		Cluster: config,                               // *rest.Config: reads /openid/v1/jwks of the API server
//		Issuer:  "https://oidc.example.com/cluster-1", // the "iss" of the cluster's tokens
//		Store:   store,                                // where that address is served from, such as s3.Open(...)
//	}
//	result, err := publisher.Publish(ctx) // once, or mgr.Add(publisher) to look every minute
//
// # What is published
//
// The discovery document is made, not copied, because the API server names its own address in it. Keys come from the API server, RSA and
// EC public keys only. Both files have the paths that a cluster with an issuer uses: /.well-known/openid-configuration and
// /openid/v1/jwks below the issuer.
//
// # Rotation
//
// Every key that a look at the API server shows is published. A key is unpublished after MaxTokenLifetime in which no look showed it, so
// that no valid token loses its key. Times in which nothing looked for more than ten minutes do not count, so that a publisher that
// runs less often adds keys and never removes one. The record of keys lies beside the documents, and is written before them. Writes are
// conditional: any number of publishers may share a Store. Keys that another tool has published are adopted.
//
// No token is lost in this order: give the new public key to every API server (--service-account-key-file); wait until it is published
// and the clouds have read it; switch signing (--service-account-signing-key-file); remove the old public key.
package issuer
