package grpccreds

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// Credentials add the access token of one identity to RPCs. They are safe for
// concurrent use.
type Credentials struct {
	source *auth.AccessTokenSource
	bearer func(auth.Token) (string, error)
}

var _ credentials.PerRPCCredentials = (*Credentials)(nil)

// New returns credentials for the options of [auth.GetAccessToken], without a
// request. T is the provider's type of tokens, and bearer reveals one, such as
// (*exchange.Token).Reveal, (*gcp.Token).AccessToken or (*gcp.IDToken).Value.
//
// Each RPC asks for the token. Without [auth.WithCache] the result keeps it
// itself, so each of several makes exchanges of its own.
func New[T any](p auth.Provider, bearer func(*T) string, opts ...auth.Option) *Credentials {
	name := provider.Name(p.GetName())
	return &Credentials{source: auth.NewAccessTokenSource(p, opts...), bearer: func(t auth.Token) (string, error) {
		own, err := provider.As[T](name, t)
		if err != nil {
			return "", err
		}
		return bearer(own), nil
	}}
}

// Invalidate makes the next RPC get a new token, after a server has refused the
// last one with codes.Unauthenticated.
func (c *Credentials) Invalidate() { c.source.Invalidate() }

// GetRequestMetadata implements credentials.PerRPCCredentials. It honours the
// context of the RPC.
func (c *Credentials) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	t, err := c.source.Token(ctx)
	if err != nil {
		return nil, &failure{codeOf(ctx, err), err}
	}
	bearer, err := c.bearer(t)
	if err != nil {
		return nil, &failure{codeOf(ctx, err), err}
	}
	return map[string]string{"authorization": "Bearer " + bearer}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. It returns
// true: gRPC sends the token over TLS only.
func (c *Credentials) RequireTransportSecurity() bool { return true }

// failure is an error of package auth with a status, which gRPC returns from
// the RPC as it is. It replaces codes that gRFC A54 reserves for servers.
type failure struct {
	code codes.Code
	err  error
}

func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns the error of package auth.
func (f *failure) Unwrap() error { return f.err }

// GRPCStatus makes status.Code return the code.
func (f *failure) GRPCStatus() *status.Status { return status.New(f.code, f.err.Error()) }

func codeOf(ctx context.Context, err error) codes.Code {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Code()
	case errors.Is(err, auth.ErrDenied):
		return codes.PermissionDenied
	case errors.Is(err, auth.ErrMisconfigured):
		return codes.Unauthenticated
	}
	return codes.Unavailable
}
