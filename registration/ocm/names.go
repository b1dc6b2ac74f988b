package ocm

// Annotations of a cluster's ClusterRole, which agents cannot write. The hub
// records a grant in the first two, before the grant. In the others, a driver
// records the one agent that the cluster is accepted for. A denial keeps them.
const (
	AuthTypeAnnotation = "registration.open-cluster-management.io/auth-type"
	ClaimAnnotation    = "registration.open-cluster-management.io/claim"
	AgentAnnotation    = "registration.open-cluster-management.io/agent"
	AgentKeyAnnotation = "registration.open-cluster-management.io/agent-key"
)

// Annotations of the same ClusterRole while the cluster is not accepted and the
// ClusterRole has no rules. In them, the hub publishes the values that its
// drivers read from the cluster. The last one is a hash of their sources.
const (
	PendingAuthTypeAnnotation = "registration.open-cluster-management.io/pending-auth-type"
	PendingClaimAnnotation    = "registration.open-cluster-management.io/pending-claim"
	PendingSourceAnnotation   = "registration.open-cluster-management.io/pending-source"
)

// ServerAnnotation belongs to the Deployment of the hub program. Its value is
// the https URL under which clusters reach the hub.
const ServerAnnotation = "registration.open-cluster-management.io/hub-apiserver"

// ManagedClustersGroup is the common group of agents that authenticate with a
// certificate. Some agents of Open Cluster Management have only the group of
// their cluster.
const ManagedClustersGroup = "system:open-cluster-management:managed-clusters"

const (
	// BootstrapRole is the ClusterRole of bootstrap users on the hub. Open
	// Cluster Management's ClusterRole has another name and stays unchanged.
	BootstrapRole = "open-cluster-management:hub:bootstrap"
	// BootstrapUser is the user name of the ServiceAccount that
	// manifests.BootstrapRBAC binds.
	BootstrapUser = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"
)

// Keys of the agent's Secret, beside registration.SecretKeyKubeconfig.
const (
	// SecretKeyClusterName and SecretKeyAgentName hold the names in the
	// credential.
	SecretKeyClusterName = "cluster-name"
	SecretKeyAgentName   = "agent-name"
	// SecretKeyAuthType holds the auth type of the driver that made the
	// credential. A driver never sees another driver's credential.
	SecretKeyAuthType = "auth-type"
)

// AddOnClusterLabel belongs to Secrets of add-ons. Its value is the cluster's
// name.
const AddOnClusterLabel = "registration.open-cluster-management.io/cluster"

// Labels of the ServiceAccount, Role and RoleBinding that a hub of Open Cluster
// Management creates for an add-on.
const (
	AddOnLabel = "addon.open-cluster-management.io/name"
	TokenLabel = "addon.open-cluster-management.io/token-infrastructure" //nolint:gosec // a name
)

// TokenRoleSuffix ends the name of the Role and the RoleBinding of an add-on's
// tokens.
const TokenRoleSuffix = "-token-role"

// Names of the programs' objects in the manifests. HubNamespace holds
// HubDeployment and HubServiceAccount.
const (
	HubNamespace      = "open-cluster-management-hub"
	HubServiceAccount = "registration-controller-sa"
	HubDeployment     = "registration-controller"
	// HubAuthTypes is the ConfigMap in HubNamespace in which the hub publishes
	// its auth types. Its keys are KeyAuthTypes, a comma-separated list, and
	// KeyDefaultAuthType, which is empty without a default.
	HubAuthTypes       = "registration-auth-types"
	KeyAuthTypes       = "auth-types"
	KeyDefaultAuthType = "default"
	// RelayNamespace holds the relay's Deployment, Service and ServiceAccount,
	// which are all called RelayName.
	RelayNamespace = "open-cluster-management-relay"
	RelayName      = "registration-relay"
	// RelaySecret holds the relay's serving certificate.
	RelaySecret = "registration-relay-tls" //nolint:gosec // a name
	// AgentName is the name of the agent's Deployment, and of its
	// ServiceAccount without aws-irsa.
	AgentName = "registration-agent"
	// Container is the name of the container in these Deployments.
	Container = "registration"
)
