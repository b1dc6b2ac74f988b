// Package token registers add-ons by ServiceAccount token: the hub makes a ServiceAccount for each add-on, and the add-on's agent
// requests its tokens with the cluster's credential. It needs no approval of certificates. Clusters themselves use another driver.
//
// On the managed cluster, [Driver] is one of the drivers of an agent for add-ons:
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
// The agent declares the driver and the ServiceAccount in the add-on's kubeClient item. The hub checks that the ServiceAccount is one of
// this very add-on and creates it, with a Role that lets the groups of the cluster request its tokens. The condition
// TokenInfrastructureReady carries its UID. The agent requests a token and reports it in the condition AddonTokenRefreshed.
//
// The agent refreshes the token at 75 to 80 % of its lifetime, when the UID changes, and when the Secret is gone. A failed refresh keeps the old
// token. The hub gives the ServiceAccount no rights: the add-on's own controller binds roles to the declared subject.
//
// # What the hub revokes
//
// All objects belong to the add-on, so the garbage collector removes them with it, whether or not the hub's controller runs. The hub
// removes them when the agent has declared another driver and withdrawn its condition, and when the cluster is denied or deleted. Deleting
// a ServiceAccount ends its tokens within seconds. Objects that do not belong to the add-on are refused, never adopted or deleted.
//
// # Rights
//
// RBAC lets the hub hand out only rights that it holds itself, so [registration.TokenManifest] gives it create on
// serviceaccounts/token for all ServiceAccounts. The names of ServiceAccounts are not known in advance, and the verb escalate would give more. An admission
// policy in the same manifest takes back what it does not need: the controller requests no token, it writes ServiceAccounts and Roles in
// namespaces of clusters only, and it passes on the right to tokens nowhere else.
//
// RBAC does not limit lifetimes either. Another policy caps the tokens of add-ons at one year, which its ConfigMap changes.
package token
