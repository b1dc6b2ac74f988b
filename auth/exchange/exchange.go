package exchange

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	opExchange = "exchange token"

	grantType = "urn:ietf:params:oauth:grant-type:token-exchange"
)

// NewTokenForServiceAccount exchanges the ServiceAccount's token.
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, _ *corev1.ServiceAccount,
	opts *auth.Options) (auth.Token, error) {
	return p.exchange(ctx, oidcToken, opts)
}

// exchange sends the token to the server and reads the answer.
func (p *Provider) exchange(ctx context.Context, subjectToken string, opts *auth.Options) (auth.Token, error) {
	if err := p.ValidateOptions(opts); err != nil {
		return nil, err
	}
	httpClient, err := self.HTTPClient(&p.transports, opts)
	if err != nil {
		return nil, err
	}
	endpoint, err := p.endpoint(ctx, httpClient)
	if err != nil {
		return nil, err
	}
	form, actor, err := p.form(ctx, subjectToken, opts)
	if err != nil {
		return nil, err
	}
	r := &tokenRequest{provider: p, opts: opts, endpoint: endpoint, shared: form}
	r.addSecrets(subjectToken, actor)
	answer, err := transport.Send(ctx, httpClient, func() (*http.Request, error) { return r.make(ctx) }, again)
	if err != nil {
		return nil, r.sendError(err)
	}
	return r.read(answer)
}

// form has the parameters of RFC 8693, section 2.1.
func (p *Provider) form(ctx context.Context, subjectToken string, opts *auth.Options,
) (form url.Values, actor string, err error) {
	form = url.Values{
		"grant_type":         {grantType},
		"subject_token":      {subjectToken},
		"subject_token_type": {firstNonEmpty(p.SubjectTokenType, TokenTypeJWT)},
	}
	for name, value := range map[string]string{
		"audience":             p.audience(opts),
		"resource":             p.resource(opts),
		"requested_token_type": p.RequestedTokenType,
		"scope":                strings.Join(opts.Scopes, " "),
	} {
		if value != "" {
			form.Set(name, value)
		}
	}
	if p.ActorToken == nil {
		return form, "", nil
	}
	if actor, err = ownToken(ctx, p.ActorToken, "the actor token", p.learn().audiences[:], opts); err != nil {
		return nil, "", err
	}
	form.Set("actor_token", actor)
	form.Set("actor_token_type", firstNonEmpty(p.ActorTokenType, TokenTypeJWT))
	return form, actor, nil
}

// tokenRequest is one exchange. Each try of it is authenticated anew, because servers accept an assertion only once.
type tokenRequest struct {
	provider *Provider
	opts     *auth.Options
	endpoint string
	shared   url.Values // what all tries have in common
	sentAt   time.Time

	form          url.Values
	authorization string
	secrets       []string
}

func (r *tokenRequest) addSecrets(secrets ...string) {
	for _, s := range secrets {
		if s != "" && !slices.Contains(r.secrets, s) {
			r.secrets = append(r.secrets, s)
		}
	}
}

func (r *tokenRequest) make(ctx context.Context) (*http.Request, error) {
	r.form = url.Values{}
	for name, values := range r.shared {
		r.form[name] = values
	}
	if c := r.provider.Client; c != nil {
		if err := c.authenticate(ctx, r); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint, strings.NewReader(r.form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if r.authorization != "" {
		req.Header.Set("Authorization", r.authorization)
	}
	r.sentAt = time.Now()
	return req, nil
}

// sendError is for exchanges without an answer.
func (r *tokenRequest) sendError(err error) error {
	var known *auth.Error
	if errors.As(err, &known) {
		return err // of the client's authentication
	}
	return &auth.Error{Operation: opExchange, Reason: auth.ErrUnavailable, Err: err,
		Message: transport.Message(err, r.secrets...)}
}
