// Package clusterprofile gives controllers access to the clusters of SIG
// Multicluster's inventory. A call acts as a tenant's ServiceAccount, and no
// plugin has to run. [GetConfig] takes the cluster of an access provider, an
// entry of status.accessProviders in a ClusterProfile (KEP-4322), as the
// example of the package shows.
//
// The author of a ClusterProfile is not trusted with a credential. [GetConfig]
// states the conditions for an address, a CA, a proxy and a name.
package clusterprofile
