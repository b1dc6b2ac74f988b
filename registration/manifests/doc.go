// Package manifests builds the manifests of a hub and of its agents:
// CustomResourceDefinitions, RBAC, admission policies and the Deployments of
// the programs wid-hub and wid-agent. The commands wid hub init and wid join
// print and apply its results.
//
// Hub and Agent return YAML documents in the order in which they are applied.
// Parse returns the objects in them. Equal options give equal manifests. No
// function asks a cluster or AWS.
package manifests
