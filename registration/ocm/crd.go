package ocm

import _ "embed"

// CRD is the CustomResourceDefinition of ManagedClusters, in YAML, for hubs that have none. It serves one version.
//
//go:embed cluster.open-cluster-management.io_managedclusters.yaml
var CRD string
