// Package agent joins a managed cluster to a hub and keeps it joined. It runs
// any [registration.Driver].
//
//	joining, err := agent.New(agent.Options{Cluster: "cluster1", Driver: csr.New(csr.Options{}), Local: local})
//	...
//	err = joining.SetupWithManager(mgr)
//
// [Agent] creates the ManagedCluster with a bootstrap credential, stores the
// credential that its driver gets, and renews its Lease. [AddOns] gets the
// credentials of the cluster's add-ons.
package agent
