// Package admin shows the clusters of a hub to its administrators, and deletes what denied clusters leave behind. The commands wid hub
// status, deny and cleanup print what it returns.
//
// An administrator accepts a cluster by setting spec.hubAcceptsClient of its ManagedCluster, and denies it by resetting that field. The
// hub may take a cluster that it never let in for a new one, which RecordDenial prevents. Readers must not be caches, since Clusters and
// CleanUp read page by page.
package admin
