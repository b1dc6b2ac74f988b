// Package controllers maintains a cluster's bootstrap tokens and its cluster-info with a controller-runtime manager:
//
//   - Signer signs cluster-info with every token.
//   - Cleaner deletes expired tokens.
//   - Publish creates cluster-info and lets anonymous clients read it.
//
// They replace kubeadm's publishing, and bootstrapsigner and tokencleaner of kube-controller-manager. Do not run two signers.
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: cache.Options{ByObject: controllers.ByObject()}})
//	err = (&controllers.Signer{Client: mgr.GetClient(), Events: recorder}).SetupWithManager(mgr)
//	err = (&controllers.Cleaner{Client: mgr.GetClient(), Events: recorder}).SetupWithManager(mgr)
//
// Signer and Cleaner need the rules of rbac.yaml, which cover two namespaces. ByObject limits the manager's cache to these.
// Without it the manager requests the Secrets and ConfigMaps of the whole cluster, is refused, and stops. The client of Publish
// must be able to create and patch what it publishes; it may be an administrator's.
package controllers
