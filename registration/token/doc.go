// Package token registers add-ons by ServiceAccount token. The hub creates a
// ServiceAccount for each add-on, and the agent requests its tokens with the
// cluster's credential. Tokens need no approval and no signer. Clusters
// themselves use another driver.
//
// On the managed cluster, [Driver] is one of the drivers of
// registration.AddOns:
//
//	driver, err := token.New(token.Options{})
//
// On the hub, [Hub] provides the ServiceAccounts:
//
//	hub, err := token.NewHub(token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
//	err = hub.SetupWithManager(mgr, 8)
//
// # How an add-on gets its token
//
//  1. The agent declares the driver and the ServiceAccount in the add-on's
//     kubeClient item.
//  2. The hub checks that the ServiceAccount belongs to this add-on, and
//     creates it. A Role lets the groups of the cluster request its tokens. The
//     condition TokenInfrastructureReady carries its UID.
//  3. The agent requests a token, stores it, and reports it in the condition
//     AddonTokenRefreshed.
//
// The agent refreshes the token at 75 to 80 % of its lifetime, after a change
// of the UID, and when the Secret is gone. A failed refresh keeps the old
// token. The hub gives the ServiceAccount no rights: the add-on's own
// controller binds roles.
//
// # Revocation
//
// The add-on owns all objects, so the garbage collector removes them with it,
// even if the hub's controller does not run. The hub removes them when the
// cluster is denied or deleted, and when the add-on is gone. After a switch to
// another driver it waits until the agent has withdrawn its condition. Tokens
// of a deleted ServiceAccount stop working within seconds.
//
// The hub finds its objects by labels and names together, so it does not need
// the add-on to find them. It looks for them at every start. If an object has
// lost its owner, the hub makes the add-on its owner, and keeps the
// ServiceAccount and its tokens. It refuses objects of that name with other
// labels or with another owner, and never changes or deletes them.
//
// The hub adopts the objects that a hub of Open Cluster Management has left, so
// their tokens stay valid. That hub's Role and RoleBinding have to give the
// cluster the tokens of exactly that ServiceAccount. Its labels alone prove
// nothing.
//
// # Rights
//
// RBAC lets the hub grant only rights that it holds. [manifests.TokenRBAC]
// therefore gives it create on serviceaccounts/token of all ServiceAccounts,
// because their names are unknown in advance. The verb escalate would give
// more.
//
// An admission policy in the same manifest removes the excess. The controller
// cannot request a token. It writes ServiceAccounts and Roles only in
// namespaces of clusters, and grants the right to tokens only there.
//
// RBAC does not limit lifetimes. Another policy caps the tokens of add-ons at
// one year, and its ConfigMap changes the cap.
package token
