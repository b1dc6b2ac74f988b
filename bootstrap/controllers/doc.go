// Package controllers maintains a cluster's bootstrap tokens and its
// cluster-info with a controller-runtime manager, for clusters without kubeadm
// and kube-controller-manager:
//
//   - [Publish] creates cluster-info and lets anonymous clients read it.
//   - [Signer] signs cluster-info with every token.
//   - [Cleaner] deletes expired tokens.
//
// They replace kubeadm's publishing, and bootstrapsigner and tokencleaner of
// kube-controller-manager. Do not run two signers.
//
// The example of the package shows what they write. The example of [ByObject]
// sets up the manager.
//
// [Signer] and [Cleaner] need the rules of rbac.yaml, which cover two
// namespaces. [ByObject] limits the manager's cache to these. Without it the
// manager requests the Secrets and ConfigMaps of the whole cluster, is refused,
// and stops. The client of [Publish] must be able to create and patch what it
// publishes; it may be an administrator's.
package controllers
