// Package gcppool uploads the keys of an issuer to a provider of a workload
// identity pool of Google Cloud. Google then verifies tokens without any public
// address of the issuer. Programs that run an [issuer.Publisher] use it. The
// example of the package uploads keys.
//
// The publisher needs the permissions iam.workloadIdentityPoolProviders.get and
// iam.workloadIdentityPoolProviders.update on the provider
// (roles/iam.workloadIdentityPoolAdmin).
//
// # Differences from other stores
//
// Google stores only the keys. The first discovery document that a publisher
// reads names the provider's issuer, so publishers refuse the provider of
// another cluster. The process itself keeps later documents and the record of
// keys. A publisher that runs once therefore adds keys and never removes one.
// A publisher that keeps running removes keys. [issuer.Publisher.RemoveKey]
// removes one too, for as long as its process runs. Remove a leaked key from
// the API servers first, or the next publisher uploads it again.
//
// Google has no versions of a provider. Just before [Store.Write] replaces the
// keys, it compares them with the keys that were read. Two publishers that
// write within the same second can therefore undo each other. The next
// publication repairs the keys.
package gcppool
