// Package csr registers clusters by client certificate. The agent creates a
// CertificateSigningRequest on the hub, the hub approves it, and Kubernetes
// signs it. The hub has to sign client certificates; [Probe] checks it.
//
// On the managed cluster, [Driver] is one of the drivers of an agent.Agent:
//
//	driver := csr.New(csr.Options{})
//
// On the hub, [HubDriver] is one of the drivers of a hub.Hub, and runs the
// approver:
//
//	driver, err := csr.NewHubDriver(csr.HubDriverOptions{
//		Client:         mgr.GetClient(),
//		Reader:         mgr.GetAPIReader(),
//		BootstrapUsers: []string{"system:serviceaccount:open-cluster-management:agent-registration-bootstrap"},
//	})
//
// # Approval
//
// A request has to name exactly one agent of one cluster and the group of that
// cluster. It may also name the common group of all agents,
// "system:open-cluster-management:managed-clusters", and nothing else. It has
// at most 16 KiB, and an RSA key at most 8,192 bits. The hub has to have
// accepted the cluster for this driver. The approver then accepts two cases:
//
//   - A renewal comes from the agent itself. RBAC has to allow the agent the
//     verb renew on managedclusters/clientcertificates in the group
//     register.open-cluster-management.io. A denial removes that RBAC.
//   - A first request comes from a bootstrap user, before the cluster has
//     joined. Any bootstrap user can ask for any cluster in that time, so
//     accept a cluster when its agent is about to join.
//
// Each cluster has one agent. Before the approver approves, it records the
// agent's name and the SHA-256 of its first key in annotations of the cluster's
// ClusterRole. It then refuses all other agents, and first requests with
// another key. If two keys ask before the first approval, it refuses both. If
// an administrator has approved a request, the hub records the agent of that
// request, even if the ClusterRole is created later.
//
// An administrator decides between two such requests, and about an agent that
// has lost its certificate: wid hub accept --approve-request approves one
// request and replaces the record. A denial keeps the record, so after another
// acceptance that agent alone renews its certificate. The deletion of the
// ManagedCluster deletes the record.
//
// The approver never denies a request, so an administrator can still approve
// it. An Event of the request states why, and its reason names the cause. The
// approver checks a refused request again if its cause can change.
//
// # Your own approval
//
// [List] with [Request.IsPending] returns the pending requests. The methods of
// [Request] approve and deny for an administrator, and record an agent as the
// approver does. They do not check the requester. The caller needs a policy for
// it, such as the one in examples/approve.
//
// # Revocation
//
// Kubernetes cannot revoke a certificate. A denied or deleted cluster keeps its
// certificate until the expiry, without any rights. All unexpired certificates
// of a cluster work again if it is accepted again, or if a new cluster of the
// same name is accepted.
package csr
