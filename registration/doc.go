// Package registration joins managed clusters to a hub, in the vocabulary of Open Cluster Management: a small contract, drivers that
// plug into it, and reconcilers for the agent, for its add-ons and for the hub.
//
// An agent on the managed cluster reaches the hub with a bootstrap credential that may do little: it creates a ManagedCluster.
// An administrator of the hub accepts it. Then the hub grants the cluster a namespace and its RBAC, and the driver gets the agent a
// credential of its own: a client certificate (package csr), or AWS IAM (package awsirsa).
//
// After that, AddOns registers the cluster's add-ons, by client certificate or by ServiceAccount token (package token).
//
//	managed cluster                                   hub
//	Agent ── bootstrap credential ──▶ ManagedCluster ◀── wid hub accept
//	  │                                    │
//	Driver ── request, own identity ──▶ HubDriver: Claim, Approves, Grant, Revoke
//	  │                                    │
//	Secret hub-kubeconfig-secret        Hub: namespace, RBAC, conditions, finalizer
//
// # Trust
//
// The hub believes nothing that a cluster says of itself until an administrator, or the driver's own configuration, accepts it. What it
// then believed is recorded where the agent cannot write, and revoking goes by that record.
package registration
