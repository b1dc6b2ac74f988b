// Package gcppool uploads the keys of an issuer to a provider of a workload
// identity pool of Google Cloud, which then verifies tokens without any public
// address of the issuer. Programs that run an [issuer.Publisher] use it. The
// example of the package uploads keys.
//
// The publisher needs the permissions iam.workloadIdentityPoolProviders.get and
// iam.workloadIdentityPoolProviders.update on the provider
// (roles/iam.workloadIdentityPoolAdmin).
//
// # Differences from other stores
//
// Only the keys are stored. The first discovery document that is read names the
// provider's issuer, so that publishers refuse the provider of another cluster.
// Later ones and the record of keys are kept in the process. A publisher that
// runs once therefore adds keys and never removes one: a key leaves by a
// publisher that keeps running, or by [issuer.Publisher.RemoveKey], which holds
// as long as its process runs. Take a leaked key from the API servers first, or
// the next publisher uploads it again.
//
// Google has no versions of a provider. [Store.Write] compares the keys with
// those that were read, just before it replaces them. Two publishers that write
// within the same second can therefore undo each other; the next publication
// repairs that.
package gcppool
