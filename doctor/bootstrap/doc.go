// Package bootstrap finds out why a machine cannot discover or join a cluster by token, as kubeadm join and wid bootstrap discover do.
//
//	report := bootstrap.Run(ctx, bootstrap.Config{Server: "10.0.0.1:6443", Token: "abcdef.0123456789abcdef", Pins: pins})
//	fmt.Print(report)
//
// It sends the token only to a cluster that has proved its identity. With the ID of a token alone, or without Client, it examines
// as much as these allow.
//
//	args       the arguments: B1 the address is malformed, B2 the token, B3 a pin; nothing is sent before
//	server     an anonymous client reads cluster-info: B4 no answer, B5 not an API server, B6 anonymous requests refused,
//	           B7 refused for this path, B8 the RoleBinding is missing, B9 no cluster-info, B10 no kubeconfig in it
//	clock      B34 this machine's clock differs from the server's, by which expiry is judged
//	token      the Secret of the token: B23 missing, B24 malformed, B25 expired, B26 malformed expiration, B27 may not sign,
//	           B29 another secret half, B31 being deleted
//	pins       the CAs in cluster-info: B11 malformed cluster-info, B16 not pinned, B17 pin of something else, B18 no CA
//	tls        the server's certificate: B19 of another CA, B20 for another name, B21 not valid now; B22 other content over TLS
//	signature  cluster-info is signed: B12 for other tokens, B13 for none, B14 empty, B15 wrong
//	discovery  B22 the discovery itself is refused
//	login      the token logs in: B28 without the usage for it, B30 refused, B32 a group that tokens cannot have, B33 cluster-info
//	           names an address that does not work
package bootstrap
