// Package ocm has the wire types of Open Cluster Management (https://open-cluster-management.io) that cluster registration
// reads and writes, and their CustomResourceDefinition; package addon has those of add-ons. Field names are exactly those on the wire, as of June 2026.
//
// The types leave out fields that registration does not use. Write to real objects with patches, never with an update of
// a typed copy: an update would delete the fields that the types do not know.
//
// +kubebuilder:object:generate=true
// +groupName=cluster.open-cluster-management.io
// +versionName=v1
package ocm
