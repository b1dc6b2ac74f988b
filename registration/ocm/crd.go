package ocm

import _ "embed"

//go:embed cluster.open-cluster-management.io_managedclusters.yaml
var crd string

// CRD is the CustomResourceDefinition of ManagedClusters, in YAML, for hubs
// without it. It serves one version.
func CRD() string { return crd }
