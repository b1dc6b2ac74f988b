// Package controllers keeps a cluster's bootstrap tokens and its cluster-info, for controller-runtime managers: a Signer that
// signs cluster-info with every token, a Cleaner that deletes tokens when they end, and Publish, which sets up what
// anonymous clients may read. They do the work of kubeadm and of kube-controller-manager's bootstrapsigner and
// tokencleaner; do not run two signers.
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: cache.Options{ByObject: controllers.ByObject()}})
//	err = (&controllers.Signer{Client: mgr.GetClient(), Events: recorder}).SetupWithManager(mgr)
//	err = (&controllers.Cleaner{Client: mgr.GetClient(), Events: recorder}).SetupWithManager(mgr)
//
// Signer and Cleaner need the rules of rbac.yaml, which are for two namespaces. ByObject keeps the manager's cache to these:
// without it the manager asks for the Secrets and ConfigMaps of the whole cluster, is refused, and ends. Publish needs to
// create and patch what it publishes; its client may be an administrator's.
package controllers
