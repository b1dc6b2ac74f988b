// Package manifests builds the manifests of a hub and of its agents:
// CustomResourceDefinitions, RBAC, admission policies and the Deployments of
// the programs wid-hub and wid-agent. The commands wid hub init and wid join
// print and apply what it returns.
//
// Hub and Agent return YAML documents in the order in which they are applied.
// Parse returns the objects in them. Equal options give equal manifests, and
// nothing asks a cluster or AWS.
package manifests
