package exchange

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/transport"
)

const opExchange = "exchange token"

// NewTokenForServiceAccount exchanges the ServiceAccount's token.
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, oidcToken string,
	serviceAccount *corev1.ServiceAccount, opts *provider.Options) (auth.Token, error) {
	return p.exchange(ctx, oidcToken, serviceAccount, opts)
}

// exchange sends the token to the server and reads the answer.
func (p *Provider) exchange(ctx context.Context, subjectToken string, sa *corev1.ServiceAccount,
	opts *provider.Options) (auth.Token, error) {
	if err := p.ValidateOptions(opts); err != nil {
		return nil, err
	}
	parameters, err := p.learn().values(sa)
	if err != nil {
		return nil, err
	}
	httpClient := p.clients.For(opts)
	endpoint, err := p.endpoint(ctx, httpClient)
	if err != nil {
		return nil, err
	}
	x := oauth.Exchange{SubjectToken: subjectToken, SubjectTokenType: cmp.Or(p.SubjectTokenType, TokenTypeJWT),
		Audience: p.audience(opts), Resource: p.resource(opts), Scope: strings.Join(p.scopes(opts), " "),
		RequestedTokenType: p.RequestedTokenType}
	if p.ActorToken != nil {
		if x.ActorToken, err = ownToken(ctx, p.ActorToken, "the actor token", p.learn().audiences[:], opts); err != nil {
			return nil, err
		}
		x.ActorTokenType = cmp.Or(p.ActorTokenType, TokenTypeJWT)
	}
	r := &tokenRequest{provider: p, opts: opts, endpoint: endpoint, Exchange: x, parameters: parameters}
	r.addSecrets(subjectToken, x.ActorToken)
	r.addSecrets(slices.Collect(maps.Values(p.Headers))...)
	answer, err := p.form().send(ctx, transport.ForTokens(httpClient), r)
	if err != nil {
		return nil, unavailable(err, "", r.secrets...)
	}
	return r.read(answer)
}

// tokenRequest is one exchange. Each try of it is authenticated anew, because
// the secret may have been replaced.
type tokenRequest struct {
	oauth.Exchange
	provider   *Provider
	opts       *provider.Options
	endpoint   *url.URL
	parameters map[string]string
	sentAt     time.Time

	form          url.Values
	authorization string
	secrets       []string

	parsed *parsed // of the last try
}

// parsed is the JSON of an answer, or the error of an answer that is not JSON.
type parsed struct {
	object exactjson.Object
	err    error
}

// object parses an answer once.
func (r *tokenRequest) object(answer transport.Answer) (exactjson.Object, error) {
	if r.parsed == nil {
		o, err := exactjson.ParseObject(answer.Body)
		r.parsed = &parsed{o, err}
	}
	return r.parsed.object, r.parsed.err
}

func (r *tokenRequest) addSecrets(secrets ...string) {
	for _, s := range secrets {
		if s != "" && !slices.Contains(r.secrets, s) {
			r.secrets = append(r.secrets, s)
		}
	}
}

func (r *tokenRequest) make(ctx context.Context) (*http.Request, error) {
	r.parsed = nil
	req, err := r.provider.form().request(ctx, r)
	if err != nil {
		return nil, err
	}
	for name, value := range r.provider.headers() {
		req.Header.Set(name, value)
	}
	r.sentAt = time.Now()
	return req, nil
}
