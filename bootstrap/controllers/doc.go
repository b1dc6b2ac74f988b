// Package controllers keeps a cluster's bootstrap tokens and its cluster-info, for controller-runtime managers: a Signer that
// signs cluster-info with every token, a Cleaner that deletes tokens when they end, and Publish, which sets up what
// anonymous clients may read. They do the work of kubeadm and of kube-controller-manager's bootstrapsigner and
// tokencleaner; do not run two signers.
//
//	if err := controllers.Publish(ctx, mgr.GetClient(), info); err != nil { ... }
//	if err := (&controllers.Signer{Client: mgr.GetClient(), Events: recorder}).SetupWithManager(mgr); err != nil { ... }
//	if err := (&controllers.Cleaner{Client: mgr.GetClient(), Events: recorder}).SetupWithManager(mgr); err != nil { ... }
//
// The rules they need are in rbac.yaml; Publish needs to create and patch what it publishes. Have the manager's cache hold the Secrets of kube-system alone
// (cache.Options.ByObject), so that no other Secret is read.
package controllers
