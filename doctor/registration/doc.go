// Package registration finds out why a managed cluster does not join its hub, or why its agent or add-ons have no credential. It
// examines hubs and agents of this module and those of Open Cluster Management alike.
//
//	report := registration.Run(ctx, registration.Config{ClusterName: "cluster1", Hub: hub, Spoke: spoke})
//	fmt.Print(report)
//
// Give it the kubeconfig of one side or of both. It changes nothing, and shows of Secrets names and keys alone.
//
//	time        O40 this machine's clock differs from the hub's, by which expiry is judged
//	sides       O1 the kubeconfig of the hub is not that of a hub, the two are swapped, or the same; O2 the name is
//	            malformed
//	agent       O19 the bootstrap credential of the agent does not work, O21 the agent does not trust the hub's certificate, O22 no
//	            agent, O23 another cluster name, O39 the agent is not installed, does not run, or is silent
//	hub         O2 the agent never arrived, O7 requests without ManagedCluster, O38 the ManagedCluster is being deleted
//	claim       registration by AWS IAM: O30 an annotation is missing, O31 an ARN is malformed, O32 an ARN or suffix of another
//	            hub or cluster, O35 two ManagedClusters claim one ARN
//	accept      O10 not accepted, O11 the hub did not act, O12 denied, O13 the hub refused or could not grant, O42 the claim has changed
//	rbac        O41 the RBAC of an accepted cluster is missing
//	csr         the newest request for a certificate: O2 none, O3 pending, O4 denied, O5 failed, O6 not signed, O8 of a cluster that
//	            joins again; O9 too many
//	secret      O24 a Secret is missing, O25 a key; the certificate is O26 of another cluster, O27 expired
//	credential  O20 the agent's own credential does not work, O37 the operator cannot tell
//	joined      O14 not joined, O36 the certificate cannot be renewed
//	clock       O18 the clocks of hub and cluster differ
//	lease       O15 not renewed, O16 the cluster is unavailable, O17 nothing reported
//	addons      O28 the hub has no token infrastructure, O29 a request is pending, O43 an item is refused, O44 no controller for tokens,
//	            O45 no token, O46 no certificate
//	aws         O33 the role cannot be assumed, O34 no access entry or not the group
package registration
