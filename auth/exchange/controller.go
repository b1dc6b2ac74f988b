package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/transport"
)

// NewControllerToken exchanges the controller's own token, which it reads from TokenFile.
func (p *Provider) NewControllerToken(ctx context.Context, opts *auth.Options) (auth.Token, error) {
	if err := p.ValidateOptions(opts); err != nil {
		return nil, err
	}
	if p.TokenFile == "" {
		return nil, self.Misconfigured("set Provider.TokenFile to a projected ServiceAccount token, or name a ServiceAccount",
			"this process has no identity of its own at the server")
	}
	audiences := p.learn().audiences[:]
	if len(opts.Audiences) > 0 {
		audiences = opts.Audiences
	}
	token, err := ownToken(ctx, auth.NewFileTokenSource(p.TokenFile), "the controller's token", audiences, opts)
	if err != nil {
		return nil, err
	}
	return p.exchange(ctx, token, opts)
}

// ownToken gets a token of the controller itself and makes sure that it may be sent out, as auth does for those of
// ServiceAccounts: a file holds whatever was mounted, and that may be a token for the API server.
func ownToken(ctx context.Context, source auth.SubjectTokenSource, what string, audiences []string,
	opts *auth.Options) (string, error) {
	token, _, err := source.Token(ctx, slices.Clone(audiences))
	if err != nil {
		return "", sourceError(err, what+" cannot be had", token)
	}
	var refused *auth.Error
	if err := opts.CheckSubjectToken(token, audiences); errors.As(err, &refused) {
		named := *refused
		named.Message = what + " is not sent out: " + refused.Message
		return "", &named
	} else if err != nil {
		return "", err
	}
	return token, nil
}

// sourceError passes on what a source of the controller's secrets says, and makes an Error of what is none.
func sourceError(err error, what string, secrets ...string) error {
	var known *auth.Error
	if errors.As(err, &known) {
		return err
	}
	return &auth.Error{Operation: opExchange, Reason: auth.ErrUnavailable, Err: err,
		Message: fmt.Sprintf("%s: %s", what, transport.Message(err, secrets...))}
}
