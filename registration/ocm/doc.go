// Package ocm holds wire types of Open Cluster Management
// (https://open-cluster-management.io) and the CustomResourceDefinition of
// ManagedClusters. Package addon holds the types of add-ons. Field names match
// the wire as of June 2026.
//
// It also holds the names on the wire that hub, agent and drivers share:
// annotations, labels, groups, keys of Secrets, conditions and their reasons.
//
// The types leave out fields that registration does not use. Write to real
// objects with patches: an update of a typed copy would delete the fields that
// the types do not know.
//
// +kubebuilder:object:generate=true
// +groupName=cluster.open-cluster-management.io
// +versionName=v1
package ocm
