// Package hub accepts managed clusters, grants their access and revokes it. It
// runs any [registration.HubDriver].
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Cache: hub.CacheOptions()})
//	...
//	clusters, err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: drivers, Default: registration.AuthTypeCSR})
//	...
//	err = clusters.SetupWithManager(mgr, 8)
package hub
