package registration

import _ "embed"

// HubManifest is what a hub needs beside the CustomResourceDefinition ocm.CRD, in YAML: the namespace and the least RBAC of the hub
// controller, the ClusterRoles that clusters get in their namespaces, and the admission policy that guards acceptance.
//
//go:embed manifests/hub.yaml
var HubManifest string

// TokenManifest is what add-on tokens need on a hub beside HubManifest, in YAML: the RBAC of the hub controller, the policy that
// confines it, and the policy that caps the lifetime of tokens.
//
//go:embed manifests/token.yaml
var TokenManifest string
