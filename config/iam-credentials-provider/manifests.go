// Package manifests holds those manifests of the IAM credentials provider that a cluster needs wherever server and webhook run.
package manifests

import _ "embed"

// Namespace is the namespace of server and webhook, in YAML.
//
//go:embed namespace.yaml
var Namespace string

// RBAC holds the ServiceAccounts of server and webhook with their least rights, in YAML.
//
//go:embed rbac.yaml
var RBAC string

// WebhookConfiguration registers the webhook under the address of its Service, in YAML.
//
//go:embed webhookconfiguration.yaml
var WebhookConfiguration string
