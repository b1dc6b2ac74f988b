package gcp

import (
	"context"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/transport"
)

const opExchange = "exchange the ServiceAccount token"

// exchange is one call of NewTokenForServiceAccount.
type exchange struct {
	provider  *Provider
	opts      *provider.Options
	client    *http.Client
	oidcToken string
	audience  string // names the workload identity pool
	email     string // of the service account to impersonate, if any
	member    string // the ServiceAccount in an IAM policy
}

// NewTokenForServiceAccount exchanges the ServiceAccount's token at the
// security token service. If an annotation names a service account, it then
// impersonates that one. The result is a *Token, or an *IDToken with
// [WithIDTokenAudience].
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount,
	opts *provider.Options) (auth.Token, error) {
	e, err := p.newExchange(ctx, oidcToken, sa, opts)
	if err != nil {
		return nil, err
	}
	if err := e.checkSubjectToken(time.Now()); err != nil {
		return nil, err
	}
	federated, err := e.federate(ctx)
	if err != nil {
		return nil, err
	}
	if e.email == "" {
		return federated, nil
	}
	return e.impersonate(ctx, federated)
}

func (p *Provider) newExchange(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount, opts *provider.Options,
) (*exchange, error) {
	e := &exchange{provider: p, opts: opts, client: p.clients.ForTokens(opts), oidcToken: oidcToken, email: opts.Identity}
	if _, ok := sa.Annotations[WorkloadIdentityProviderAnnotation]; ok {
		w, err := p.workloadIdentityProvider(sa)
		if err != nil {
			return nil, err
		}
		e.audience = p.resourceName(w)
		e.member = "principal://iam." + p.universe() + "/projects/" + w.ProjectNumber +
			"/locations/global/workloadIdentityPools/" + w.Pool + "/subject/" + opts.SubjectClaim(sa)
		return e, nil
	}
	cluster, err := p.gkeCluster(ctx, opts)
	if err != nil {
		return nil, err
	}
	e.audience = cluster.stsAudience
	e.member = "serviceAccount:" + cluster.pool() + "[" + sa.Namespace + "/" + sa.Name + "]"
	return e, nil
}

// minSubjectLife is the shortest lifetime of a token to exchange. STS answers
// with an internal error if a token expires within seconds.
const minSubjectLife = time.Minute

func (e *exchange) checkSubjectToken(now time.Time) error {
	claims, err := jwt.Parse(e.oidcToken)
	if err != nil {
		e := self.Misconfigured("use a JWT of the ServiceAccount's token issuer", "the subject token cannot be used: %v", err)
		e.Operation = opExchange
		return e
	}
	if claims.Expiry.Sub(now) < minSubjectLife {
		return self.Unavailable(opExchange, "have its source renew it earlier, and check that the clocks agree",
			"the subject token has less than %s left, or no usable expiry", minSubjectLife)
	}
	return nil
}

// TokenServiceURL returns the address at which an exchange with these options
// gets a federated token. It uses no network.
func (p *Provider) TokenServiceURL(opts *provider.Options) (string, error) { return p.stsURL(opts) }

// federate is the token exchange of RFC 8693.
func (e *exchange) federate(ctx context.Context) (*Token, error) {
	address, err := e.provider.stsURL(e.opts)
	if err != nil {
		return nil, err
	}
	scope := strings.Join(scopes(e.opts), " ")
	if e.email != "" {
		scope = scopeCloudPlatform // the caller's scopes apply to the service account's token
	}
	form := oauth.Exchange{Audience: e.audience, Scope: scope, RequestedTokenType: oauth.TokenTypeAccessToken,
		SubjectToken: e.oidcToken, SubjectTokenType: oauth.TokenTypeJWT}.Form()
	answer, err := transport.Send(ctx, e.client, func() (*http.Request, error) {
		return oauth.NewRequest(ctx, address, form)
	}, isTransient)
	if err != nil {
		return nil, self.Unanswered(opExchange, err, e.oidcToken)
	}
	if answer.Status != http.StatusOK {
		return nil, e.exchangeError(answer)
	}
	body, err := oauth.ParseAnswer(answer.Body)
	if err != nil {
		return nil, self.Unusable(opExchange, service, "%v", err)
	}
	now := time.Now()
	return newToken(opExchange, body.AccessToken, body.TokenType, "", expiry(now, body.ExpiresIn), now)
}

// expiry returns the time after the given number of seconds. It returns the
// zero time if the answer states no lifetime.
func expiry(now time.Time, seconds float64) time.Time {
	const most = 100 * 365 * 24 * 3600 // fits into a Duration
	if seconds == 0 || seconds > most {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds * float64(time.Second))).Truncate(time.Second)
}
