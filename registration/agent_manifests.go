package registration

import _ "embed"

// AgentManifest is the RBAC of the agent on the managed cluster, in YAML, for the ServiceAccount "registration-agent" and the default
// names of AgentOptions.
//
//go:embed manifests/agent.yaml
var AgentManifest string

// AgentAddOnManifest is the RBAC of the agent where it stores the credentials of add-ons, in YAML: for DefaultAddOnNamespace, which it
// creates, and the ServiceAccount of AgentManifest. Other namespaces that add-ons name need the same Role and RoleBinding.
//
//go:embed manifests/agent-addon.yaml
var AgentAddOnManifest string

// BootstrapManifest is the RBAC of bootstrap users on the hub, in YAML: those of BootstrapGroup, and the ServiceAccount
// "agent-registration-bootstrap" of the namespace "open-cluster-management". It includes the ValidatingAdmissionPolicy without which
// they could edit clusters that have been accepted.
//
//go:embed manifests/bootstrap.yaml
var BootstrapManifest string

const (
	// BootstrapRole is the ClusterRole of bootstrap users on the hub.
	BootstrapRole = "open-cluster-management:bootstrap"
	// BootstrapGroup is the group of bootstrap users. A bootstrap token names it in auth-extra-groups.
	BootstrapGroup = "system:bootstrappers:managedcluster"
)
