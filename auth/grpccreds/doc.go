// Package grpccreds hands out the access tokens of package auth to clients of
// gRPC, as the credentials of each RPC.
//
// One connection serves many tenants, if each RPC has the credentials of its
// tenant:
//
//	conn, err := grpc.NewClient("api.example.com:443", grpc.WithTransportCredentials(credentials.NewTLS(nil)))
//	...
//	creds := grpccreds.New(provider, (*exchange.Token).Reveal, auth.WithServiceAccount(key, kube), auth.WithCache(tokens, owner))
//	answer, err := client.Get(ctx, request, grpc.PerRPCCredentials(creds))
//
// A connection of one tenant takes them with grpc.WithPerRPCCredentials
// instead. Do not use both, because the server would receive both tokens. An
// RPC without either is anonymous.
//
// # Errors
//
// An RPC whose token cannot be obtained is not sent. Its error has the status
// codes.PermissionDenied for [auth.ErrDenied], codes.Unauthenticated for
// [auth.ErrMisconfigured], and codes.Unavailable otherwise. If the context of
// the RPC has ended, the code is codes.Canceled or codes.DeadlineExceeded.
// errors.Is and errors.As reach the [auth.Error], which no error of a server
// has:
//
//	if e := (*auth.Error)(nil); errors.As(err, &e) {
//		// the token, not the server
//	}
package grpccreds
