// Package manifests holds those manifests of the IAM credentials provider that
// a cluster needs wherever server and webhook run.
package manifests

import _ "embed"

var (
	//go:embed namespace.yaml
	namespace string
	//go:embed rbac.yaml
	rbac string
	//go:embed webhookconfiguration.yaml
	webhookConfiguration string
)

// Namespace is the namespace of server and webhook, in YAML.
func Namespace() string { return namespace }

// RBAC holds the ServiceAccounts of server and webhook with their least rights,
// in YAML.
func RBAC() string { return rbac }

// WebhookConfiguration registers the webhook under the address of its Service,
// in YAML.
func WebhookConfiguration() string { return webhookConfiguration }
