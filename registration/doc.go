// Package registration joins managed clusters to a hub, with the objects of
// Open Cluster Management. It holds the contract of drivers: a [Driver] in the
// agent, a [HubDriver] in the hub. Package agent holds the reconcilers of the
// managed cluster and its add-ons, package hub the reconciler of the hub.
// Package manifests installs both programs.
//
// The example of the package is a hub that registers clusters by client
// certificate, and an agent that joins it. manifests.BootstrapRBAC on the hub
// gives bootstrap users their rights. The command wid hub init installs a hub,
// wid join installs an agent, and wid hub accept accepts its cluster.
//
// # Flow
//
// The agent on the managed cluster first uses a bootstrap credential, which can
// do little more than create a ManagedCluster. An administrator of the hub
// accepts the cluster. The hub then grants a namespace and RBAC, and the
// agent's driver gets a credential of the cluster's own. It is a client
// certificate (package csr) or an AWS IAM role (package awsirsa).
//
// agent.AddOns then registers the cluster's add-ons, by client certificate or
// by ServiceAccount token (package token).
//
//	managed cluster                                   hub
//	agent.Agent ── bootstrap credential ──▶ ManagedCluster ◀── wid hub accept
//	  │                                        │
//	Driver ── request, own identity ──▶     HubDriver: Claim, Approves, Grant, Revoke
//	  │                                        │
//	Secret hub-kubeconfig-secret            hub.Hub: namespace, RBAC, conditions, finalizer
//
// # Trust
//
// The hub believes no claim of a cluster until an administrator, or the
// driver's own configuration, accepts it. The hub then records the claim where
// the agent cannot write, and revokes by that record.
//
// # Rules for drivers
//
// A driver has two halves. Driver runs in the agent, and [HubDriver] runs in
// the hub.
//
//   - A credential authenticates as a member of one of the [ClusterGroups], or
//     Grant binds its user itself. The admission policies treat every other
//     user as a bootstrap user, which cannot change an accepted cluster.
//   - Next returns a new key in [Step.State], and uses it once Input.State
//     holds it. A restart then repeats no request.
//   - Next also bounds renewals by the time since the last answer. A wrong
//     clock must not cause a loop of requests.
//   - Claim is pure. Grant and Revoke get the recorded claim, are idempotent,
//     and touch only objects with the driver's labels or tags.
//   - A new name is a new auth type. Users pick a driver by its name, and an
//     unknown name is an error.
package registration
