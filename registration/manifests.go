package registration

import _ "embed"

// HubManifest holds the manifests of a hub in YAML, apart from the CustomResourceDefinition ocm.CRD. It has the namespace and the
// least RBAC of the hub controller, the ClusterRoles for clusters' namespaces, and the admission policy that guards acceptance.
//
//go:embed manifests/hub.yaml
var HubManifest string

// CleanupManifest holds a CronJob that runs wid hub cleanup on the hub every hour, in YAML, with its ServiceAccount and the least
// RBAC. It needs the namespace of HubManifest. Replace WID_IMAGE by a quoted image whose entrypoint is wid.
//
//go:embed manifests/cleanup.yaml
var CleanupManifest string

// RelayManifest holds the namespace of a relay on the hub, its ServiceAccount "registration-relay" and its right to impersonate, in
// YAML. This right equals an administrator's; only the relay limits it to agents (package relay).
//
//go:embed manifests/relay.yaml
var RelayManifest string

// TokenManifest holds the manifests for add-on tokens on a hub, in YAML, in addition to HubManifest. It has the RBAC of the hub
// controller, the policy that confines it, and the policy that caps the lifetime of tokens.
//
//go:embed manifests/token.yaml
var TokenManifest string
