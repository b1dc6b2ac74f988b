package exchange

import (
	"context"
	"errors"
	"slices"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/transport"
)

// NewControllerToken exchanges the controller's own token, which it reads from
// TokenFile.
func (p *Provider) NewControllerToken(ctx context.Context, opts *provider.Options) (auth.Token, error) {
	if err := p.ValidateOptions(opts); err != nil {
		return nil, err
	}
	if p.TokenFile == "" {
		return nil, self.Misconfigured("give it the file of a projected ServiceAccount token, or name a ServiceAccount",
			"this process has no identity of its own at the server").About("exchange.Provider.TokenFile",
			"auth.WithServiceAccount")
	}
	audiences := opts.Audiences
	if len(audiences) == 0 {
		var err error
		if audiences, err = p.GetAudiences(ctx, nil, opts); err != nil {
			return nil, err
		}
	}
	token, err := ownToken(ctx, auth.NewFileTokenSource(p.TokenFile), "the controller's token", audiences, opts)
	if err != nil {
		return nil, err
	}
	return p.exchange(ctx, token, nil, opts)
}

// ownToken gets a token of the controller itself. It checks that the token may
// be sent out, as auth does for ServiceAccount tokens, because a file may hold
// a token for the API server.
func ownToken(ctx context.Context, source auth.SubjectTokenSource, what string, audiences []string,
	opts *provider.Options) (string, error) {
	token, _, err := source.Token(ctx, slices.Clone(audiences))
	if err != nil {
		return "", unavailable(err, what+" is not available: ", token)
	}
	err = opts.CheckSubjectToken(token, audiences)
	if refused := (*auth.Error)(nil); errors.As(err, &refused) {
		named := *refused
		named.Message = what + " is not sent out: " + refused.Message
		return "", &named
	}
	return token, err
}

// unavailable returns an *Error unchanged, such as one from a source of the
// controller's secrets. It returns any other error as ErrUnavailable.
func unavailable(err error, prefix string, secrets ...string) error {
	if known := (*auth.Error)(nil); errors.As(err, &known) {
		return err
	}
	return &auth.Error{Operation: opExchange, Reason: auth.ErrUnavailable, Err: err,
		Message: prefix + transport.Message(err, secrets...)}
}
