package addon

import _ "embed"

// CRD is the CustomResourceDefinition of ManagedClusterAddOns, in YAML, for hubs that have none. It serves one version.
//
//go:embed addon.open-cluster-management.io_managedclusteraddons.yaml
var CRD string
