// Package bootstrap finds out why a machine cannot discover or join a cluster by token, as kubeadm join and wid bootstrap discover do.
//
//	report := bootstrap.Run(ctx, bootstrap.Config{Server: "10.0.0.1:6443", Token: "abcdef.0123456789abcdef", Pins: pins})
//	fmt.Print(report)
//
// It sends the token only to a cluster that has proved its identity. With the ID of a token alone, or without Client, it examines
// as much as these allow.
package bootstrap
