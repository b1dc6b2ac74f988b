package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// minter makes the credential of one call. Unlike the call it may outlive it, since exchanges are shared.
type minter struct {
	request
	jwt    redact.Secret
	tokens []Token // the access tokens that a credential is derived from

	previous cache.Key // that of the last of them
}

// accessToken makes a new access token. Its errors are complete, because the cache hands them to many callers.
func (m *minter) accessToken(ctx context.Context) (Token, error) {
	if !m.named {
		token, err := m.provider.NewControllerToken(ctx, &m.opts)
		return m.checked(token, err, "")
	}
	jwt, err := m.subjectToken(ctx)
	if err != nil {
		return nil, m.describe(err)
	}
	token, err := m.provider.NewTokenForServiceAccount(ctx, jwt, m.account.DeepCopy(), &m.opts)
	return m.checked(token, err, jwt)
}

// subjectToken returns a token of the ServiceAccount that may be sent out.
func (m *minter) subjectToken(ctx context.Context) (jwt string, err error) {
	if jwt = m.jwt.Reveal(); jwt == "" {
		source := TokenRequest{Client: m.opts.Client, ServiceAccount: &m.account,
			Lifetime: m.lifetime, BoundObject: m.opts.BoundObject}
		if jwt, _, err = source.request(ctx, m.audiences); err != nil {
			return "", err
		}
	}
	return jwt, checkSubjectToken(jwt, time.Now(), m.audiences, &m.account, &m.opts.Policy)
}

func (m *minter) checked(token Token, err error, jwt string) (Token, error) {
	switch {
	case err != nil:
		return nil, m.describe(m.opts.hideProxy(clean(err, jwt)))
	case isNil(token):
		return nil, m.describe(&Error{Reason: ErrUnavailable, Message: "the provider returned no token and no error"})
	case token.GetDuration() <= 0:
		return nil, m.describe(&Error{Reason: ErrUnavailable, Message: "the provider returned a token that has expired",
			Remedy: "check that the clocks agree"})
	}
	return token, nil
}

// hideProxy replaces the description of a request that got no answer through the proxy of the call. A tenant may have chosen
// the proxy, and would learn from the details, the failed operation among them, which hosts the controller's network has and
// what listens there.
func (o *Options) hideProxy(err *Error) *Error {
	if o.ProxyURL == nil || !transport.Unanswered(err.Err) {
		return err
	}
	return &Error{Reason: ErrUnavailable, Err: err.Err, exchange: err.exchange, Message: fmt.Sprintf("no answer through the proxy %.300q", o.ProxyURL.Host),
		Remedy: "check the proxy's address, and that it connects to the provider's hosts"}
}

// clean takes the subject token out of an error's text, should a provider or a server have quoted it.
func clean(err error, jwt string) *Error {
	var known *Error
	if !errors.As(err, &known) {
		return &Error{Reason: ErrUnavailable, Message: foreignMessage(err, jwt), Err: err, exchange: true}
	}
	cleaned := *known
	cleaned.exchange = true
	cleaned.Message = redact.Line(known.Message, jwt)
	cleaned.Remedy = redact.Line(known.Remedy, jwt)
	cleaned.Code = redact.Text(known.Code, jwt)
	cleaned.RequestID = redact.Text(known.RequestID, jwt)
	return &cleaned
}
