package registration

import _ "embed"

var (
	//go:embed manifests/hub.yaml
	hubManifest string
	//go:embed manifests/relay.yaml
	relayManifest string
	//go:embed manifests/relay-legacy.yaml
	relayLegacyManifest string
	//go:embed manifests/relay-constrained.yaml
	relayConstrainedManifest string
	//go:embed manifests/token.yaml
	tokenManifest string
	//go:embed manifests/agent.yaml
	agentManifest string
	//go:embed manifests/agent-addon.yaml
	agentAddOnManifest string
	//go:embed manifests/bootstrap.yaml
	bootstrapManifest string
	//go:embed manifests/ocm-agents.yaml
	ocmAgentsManifest string
)

// HubManifest holds the manifests of a hub in YAML, apart from the
// CustomResourceDefinition ocm.CRD. It has the namespace and the least RBAC of
// the hub controller, the ClusterRoles for clusters' namespaces, and the
// admission policies. These guard acceptance, bound the size of each object
// that agents and bootstrap users write, and refuse times that Go cannot read.
func HubManifest() string { return hubManifest }

// RelayManifest holds the namespace of a relay on the hub, its ServiceAccount
// "registration-relay" and the right to read the hub's CA for client
// certificates, in YAML. For clients with certificates it needs
// RelayConstrainedManifest or RelayLegacyManifest in addition.
func RelayManifest() string { return relayManifest }

// RelayConstrainedManifest holds the relay's rights of constrained
// impersonation, in YAML, for API servers since 1.36. They hold for the agents
// that a hub with hub.Options.Relay names, so a stolen credential of the relay
// gives what these agents may do, and nothing more.
func RelayConstrainedManifest() string { return relayConstrainedManifest }

// RelayLegacyManifest holds the relay's right to impersonate all users and
// groups, in YAML, for older API servers. This right equals an administrator's;
// only the relay limits it to agents (package relay).
func RelayLegacyManifest() string { return relayLegacyManifest }

// TokenManifest holds the manifests for add-on tokens on a hub, in YAML, in
// addition to HubManifest. It has the RBAC of the hub controller, the policy
// that confines it, and the policy that caps the lifetime of tokens.
func TokenManifest() string { return tokenManifest }

// AgentManifest holds the RBAC of the agent on the managed cluster, in YAML,
// for the ServiceAccount "registration-agent" and the default names of
// agent.Options.
func AgentManifest() string { return agentManifest }

// AgentAddOnManifest holds DefaultAddOnNamespace and the rights to store the
// credentials of add-ons and to read their Leases there, in YAML, for the
// ServiceAccount of AgentManifest. Other namespaces that add-ons name need the
// same Role and RoleBinding.
func AgentAddOnManifest() string { return agentAddOnManifest }

// BootstrapManifest holds the RBAC of bootstrap users on the hub, in YAML. It
// binds BootstrapGroup and the ServiceAccount "agent-registration-bootstrap" of
// the namespace "open-cluster-management". Its ValidatingAdmissionPolicy keeps
// them from editing accepted clusters and from creating large ones.
func BootstrapManifest() string { return bootstrapManifest }

// OCMAgentsManifest holds what agents of Open Cluster Management need in
// addition, in YAML, for a hub with hub.Options.OCMAgents. Bootstrap users may
// list and watch all ManagedClusters and certificate requests, and the hub
// controller hands out the same to clusters.
func OCMAgentsManifest() string { return ocmAgentsManifest }

// BootstrapGroup is the group of bootstrap users. A bootstrap token names it in auth-extra-groups.
const BootstrapGroup = "system:bootstrappers:managedcluster"
