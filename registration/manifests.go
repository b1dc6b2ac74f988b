package registration

import _ "embed"

// HubManifest is what a hub needs beside the CustomResourceDefinition ocm.CRD, in YAML: the namespace and the least RBAC of the hub
// controller, the ClusterRoles that clusters get in their namespaces, and the admission policy that guards acceptance.
//
//go:embed manifests/hub.yaml
var HubManifest string
