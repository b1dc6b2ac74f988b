// Package podidentity finds out why a pod gets no AWS credentials through an IAMBinding (KEP-14).
//
//	config.WarningHandlerWithContext = podidentity.Warnings{}
//	report := podidentity.Run(ctx, podidentity.Config{Namespace: "team-a", Pod: "reporting-0", Client: c})
//	fmt.Print(report)
//
// It stores nothing. The conditions of the binding have the server's verdict and that of AWS. A dry run asks the webhook itself: of a
// copy of the pod, or of a pod with the ServiceAccount. A wrong pod's remedy follows from the copy's fate.
package podidentity
