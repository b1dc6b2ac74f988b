// Package bootstrap finds out why a machine cannot discover or join a cluster by token, as kubeadm join and wid bootstrap discover do.
//
//	report := bootstrap.Run(ctx, bootstrap.Config{Server: "10.0.0.1:6443", Token: "abcdef.0123456789abcdef", Pins: pins})
//	fmt.Print(report)
//
// On the joining machine it does what the machine does, and explains the typed cause of the failure. With Client it also examines the
// objects of the cluster. It never sends the token.
package bootstrap
