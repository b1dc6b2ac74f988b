// Package hubadmin serves the administrators of a hub: it lists clusters, picks the request to approve, records denials, and deletes what
// denied clusters leave behind. wid hub accept, deny, status, cleanup and init use it.
//
// An administrator accepts a cluster by setting spec.hubAcceptsClient of its ManagedCluster, and denies it by resetting that field. The
// hub may take a cluster that it never let in for a new one, which RecordDenial prevents. Readers must not be caches, since most functions
// read page by page.
package hubadmin
