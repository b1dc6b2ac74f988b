// Package clusterprofile gives controllers access to the clusters of SIG
// Multicluster's inventory, as a tenant's ServiceAccount and with no program to
// run. [GetConfig] takes the cluster of an access provider, an entry of
// status.accessProviders in a ClusterProfile (KEP-4322), as the example of the
// package shows.
//
// The author of a ClusterProfile is not trusted with a credential: [GetConfig]
// says what an address, a CA, a proxy and a name need.
package clusterprofile
