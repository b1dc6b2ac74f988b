package registration

import _ "embed"

// AgentManifest holds the RBAC of the agent on the managed cluster, in YAML, for the ServiceAccount "registration-agent" and the
// default names of AgentOptions.
//
//go:embed manifests/agent.yaml
var AgentManifest string

// AgentAddOnManifest holds DefaultAddOnNamespace and the rights to store the credentials of add-ons there, in YAML, for the
// ServiceAccount of AgentManifest. Other namespaces that add-ons name need the same Role and RoleBinding.
//
//go:embed manifests/agent-addon.yaml
var AgentAddOnManifest string

// BootstrapManifest holds the RBAC of bootstrap users on the hub, in YAML. It binds BootstrapGroup and the ServiceAccount
// "agent-registration-bootstrap" of the namespace "open-cluster-management". Its ValidatingAdmissionPolicy keeps them from editing
// accepted clusters.
//
//go:embed manifests/bootstrap.yaml
var BootstrapManifest string

const (
	// BootstrapRole is the ClusterRole of bootstrap users on the hub.
	BootstrapRole = "open-cluster-management:bootstrap"
	// BootstrapGroup is the group of bootstrap users. A bootstrap token names it in auth-extra-groups.
	BootstrapGroup = "system:bootstrappers:managedcluster"
)
