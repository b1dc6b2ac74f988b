// Package registration finds out why a managed cluster does not join its hub, or why its agent or add-ons have no credential. It
// examines hubs and agents of this module and those of Open Cluster Management alike.
//
//	report := registration.Run(ctx, registration.Config{ClusterName: "cluster1", Hub: hub, Spoke: spoke})
//	fmt.Print(report)
//
// Give it the kubeconfig of one side or of both. It changes nothing, and shows of Secrets names and keys alone. Where a condition or an
// Event says the cause, its reason is the class of the finding. docs/doctor.md lists the reasons.
package registration
