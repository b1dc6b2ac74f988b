package manifests

import _ "embed"

var (
	//go:embed hub.yaml
	hubRBAC string
	//go:embed relay.yaml
	relayRBAC string
	//go:embed relay-legacy.yaml
	relayLegacyRBAC string
	//go:embed relay-constrained.yaml
	relayConstrainedRBAC string
	//go:embed token.yaml
	tokenRBAC string
	//go:embed agent.yaml
	agentRBAC string
	//go:embed agent-addon.yaml
	agentAddOnRBAC string
	//go:embed agent-status.yaml
	agentStatusRBAC string
	//go:embed bootstrap.yaml
	bootstrapRBAC string
	//go:embed ocm-agents.yaml
	ocmAgentsRBAC string
)

// HubRBAC holds the manifests of a hub in YAML, apart from the
// CustomResourceDefinition ocm.CRD. It has the namespace and the least RBAC of
// the hub controller, the ClusterRoles for clusters' namespaces, and the
// admission policies. These guard acceptance, bound the size of each object
// that agents and bootstrap users write, and refuse times that Go cannot read.
func HubRBAC() string { return hubRBAC }

// RelayRBAC holds the namespace of a relay on the hub, its ServiceAccount
// "registration-relay" and the right to read the hub's CA for client
// certificates, in YAML. For clients with certificates it also needs
// [RelayConstrainedRBAC] or [RelayLegacyRBAC].
func RelayRBAC() string { return relayRBAC }

// RelayConstrainedRBAC holds the relay's rights of constrained impersonation,
// in YAML, for API servers since 1.36. They cover the agents that a hub with
// hub.Options.Relay names. A stolen credential of the relay thus has only the
// rights of these agents.
func RelayConstrainedRBAC() string { return relayConstrainedRBAC }

// RelayLegacyRBAC holds the relay's right to impersonate all users and
// groups, in YAML, for older API servers. This right equals an administrator's;
// only the relay limits it to agents (package relay).
func RelayLegacyRBAC() string { return relayLegacyRBAC }

// TokenRBAC holds the manifests for add-on tokens on a hub, in YAML, in
// addition to [HubRBAC]. It has the RBAC of the hub controller, the policy that
// confines it, and the policy that caps the lifetime of tokens.
func TokenRBAC() string { return tokenRBAC }

// AgentRBAC holds the RBAC of the agent on the managed cluster, in YAML,
// for the ServiceAccount "registration-agent" and the default names of
// agent.Options.
func AgentRBAC() string { return agentRBAC }

// AgentAddOnRBAC holds agent.DefaultAddOnNamespace and the rights to store the
// credentials of add-ons and to read their Leases there, in YAML, for the
// ServiceAccount of [AgentRBAC]. Other namespaces that add-ons name need the
// same Role and RoleBinding.
func AgentAddOnRBAC() string { return agentAddOnRBAC }

// AgentStatusRBAC holds the rights to watch the nodes and to list the
// ClusterClaims of the managed cluster, in YAML, for the ServiceAccount of
// [AgentRBAC]. The agent needs them for agent.Options.ClusterStatus.
func AgentStatusRBAC() string { return agentStatusRBAC }

// BootstrapRBAC holds the RBAC of bootstrap users on the hub, in YAML. It binds
// registration.BootstrapGroup and the ServiceAccount
// "agent-registration-bootstrap" of the namespace "open-cluster-management".
// Its ValidatingAdmissionPolicy keeps them from editing accepted clusters and
// from creating large ones.
func BootstrapRBAC() string { return bootstrapRBAC }

// OCMAgentsRBAC holds the additional rights that agents of Open Cluster
// Management need, in YAML, for a hub with hub.Options.OCMAgents. Bootstrap
// users may list and watch all ManagedClusters and certificate requests, and
// the hub controller grants the same to clusters.
func OCMAgentsRBAC() string { return ocmAgentsRBAC }
