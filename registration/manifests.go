package registration

import _ "embed"

// HubManifest is what a hub needs beside the CustomResourceDefinition ocm.CRD, in YAML: the namespace and the least RBAC of the hub
// controller, the ClusterRoles that clusters get in their namespaces, and the admission policy that guards acceptance.
//
//go:embed manifests/hub.yaml
var HubManifest string

// CleanupManifest is a CronJob that runs wid hub cleanup on the hub every hour, in YAML, with its ServiceAccount and the least RBAC. It
// needs the namespace of HubManifest. Replace WID_IMAGE by an image whose entrypoint is wid, in quotes.
//
//go:embed manifests/cleanup.yaml
var CleanupManifest string

// RelayManifest holds the namespace of a relay on the hub, its ServiceAccount "registration-relay" and its right to impersonate, in YAML.
// That is the right of an administrator, which the relay limits to agents (package relay).
//
//go:embed manifests/relay.yaml
var RelayManifest string

// TokenManifest is what add-on tokens need on a hub beside HubManifest, in YAML: the RBAC of the hub controller, the policy that
// confines it, and the policy that caps the lifetime of tokens.
//
//go:embed manifests/token.yaml
var TokenManifest string
