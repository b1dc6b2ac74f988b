// Package clusterprofile gives access to the clusters of SIG Multicluster's inventory, as a tenant's ServiceAccount and with no program
// to run. It takes the cluster of an access provider, an entry of status.accessProviders in a ClusterProfile (KEP-4322):
//
//	for _, access := range profile.Status.AccessProviders {
//		if access.Name != "eks" {
//			continue
//		}
//		config, err := clusterprofile.GetConfig(ctx, &aws.Provider{}, &access.Cluster,
//			auth.WithServiceAccount(client.ObjectKey{Namespace: profile.Namespace, Name: "deployer"}, kube),
//			auth.WithCache(tokens, cache.InvolvedObject{Kind: "ClusterProfile", Namespace: profile.Namespace, Name: profile.Name}))
//		...
//	}
//
// The author of a ClusterProfile is not trusted with a credential: GetConfig says what an address, a CA, a proxy and a name need.
package clusterprofile
