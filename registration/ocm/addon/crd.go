package addon

import _ "embed"

//go:embed addon.open-cluster-management.io_managedclusteraddons.yaml
var crd string

// CRD is the CustomResourceDefinition of ManagedClusterAddOns, in YAML, for
// hubs without it. It serves one version.
func CRD() string { return crd }
