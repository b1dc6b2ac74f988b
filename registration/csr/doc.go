// Package csr registers clusters by client certificate: the agent asks the hub for one with a CertificateSigningRequest, the hub
// approves it, and Kubernetes signs it. It needs a hub that signs client certificates; [Probe] finds out.
//
// On the managed cluster, [Driver] is one of the drivers of a registration.Agent:
//
//	driver := csr.New(csr.Options{})
//
// On the hub, [HubDriver] is one of the drivers of a registration.Hub, and runs the approver:
//
//	driver, err := csr.NewHub(csr.HubOptions{
//		Client:         mgr.GetClient(),
//		Reader:         mgr.GetAPIReader(),
//		BootstrapUsers: []string{"system:serviceaccount:open-cluster-management:agent-registration-bootstrap"},
//	})
//
// # What the approver approves
//
// A request has to name exactly one agent of one cluster, in exactly the two groups of that cluster, and the hub has to have accepted
// the cluster for this driver. Then there are two cases:
//   - A renewal comes from the agent itself, and RBAC allows the agent to renew on managedclusters/clientcertificates in the group
//     register.open-cluster-management.io. Denying a cluster removes that RBAC.
//   - A first request comes from a bootstrap user, before the cluster has joined. Any bootstrap user can ask for any cluster in that time, so
//     accept a cluster when its agent is about to join.
//
// Each acceptance is for one agent. The first approval records the agent's name in an annotation of the cluster's ClusterRole, and no
// other agent gets a certificate afterwards. If two agents ask before that, neither does. In both cases, and for an agent that has lost
// its certificate, a person decides and approves one request with wid hub accept, which replaces the record. Denial deletes it.
//
// The approver never denies: a person may still approve what it refuses. It judges again later what may change.
//
// Kubernetes cannot revoke a certificate. A cluster that is denied or deleted keeps its certificate until it expires, without any
// access by RBAC. A new cluster of the same name, accepted before then, shares its namespace with the holder of the old certificate.
package csr
