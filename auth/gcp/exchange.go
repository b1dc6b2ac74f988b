package gcp

import (
	"context"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/transport"
)

const opExchange = "exchange the ServiceAccount token"

// exchange is what NewTokenForServiceAccount is about.
type exchange struct {
	provider  *Provider
	opts      *auth.Options
	client    *http.Client
	oidcToken string
	audience  string // of the exchange, by which STS knows the pool
	email     string // of the service account to impersonate
	member    string // the ServiceAccount in an IAM policy
}

// NewTokenForServiceAccount exchanges the ServiceAccount's token at the security token service and, if an annotation names a
// service account, has that impersonated. The result is a *Token, or an *IDToken with WithIDTokenAudience.
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount,
	opts *auth.Options) (auth.Token, error) {
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

func (p *Provider) newExchange(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount, opts *auth.Options,
) (*exchange, error) {
	email, err := p.GetIdentity(sa, opts)
	if err != nil {
		return nil, err
	}
	e := &exchange{provider: p, opts: opts, oidcToken: oidcToken, email: email}
	if e.client, err = self.HTTPClient(&p.transports, opts); err != nil {
		return nil, err
	}
	if _, ok := sa.Annotations[WorkloadIdentityProviderAnnotation]; ok {
		w, err := p.workloadIdentityProvider(sa, opts)
		if err != nil {
			return nil, err
		}
		e.audience = p.resourceName(w)
		e.member = "principal://iam." + p.universe() + "/projects/" + w.ProjectNumber +
			"/locations/global/workloadIdentityPools/" + w.Pool + "/subject/system:serviceaccount:" + sa.Namespace + ":" + sa.Name
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

// minSubjectLife is what a token has to live at least to be exchanged: STS answers with an internal error to one that ends
// within seconds.
const minSubjectLife = time.Minute

func (e *exchange) checkSubjectToken(now time.Time) error {
	claims, err := jwt.Parse(e.oidcToken)
	if err != nil {
		return &auth.Error{Provider: ProviderName, Operation: opExchange, Reason: auth.ErrMisconfigured,
			Message: "the subject token cannot be used: " + err.Error(),
			Remedy:  "use a token of the cluster's ServiceAccount token issuer"}
	}
	if claims.Expiry.Sub(now) < minSubjectLife {
		return self.Unavailable(opExchange, "have its source renew it earlier, and check that the clocks agree",
			"the subject token has less than %s left, or no usable expiry", minSubjectLife)
	}
	return nil
}

// federate is the token exchange of RFC 8693.
func (e *exchange) federate(ctx context.Context) (*Token, error) {
	address, err := e.provider.stsURL(e.opts)
	if err != nil {
		return nil, err
	}
	scope := strings.Join(scopes(e.opts), " ")
	if e.email != "" {
		scope = scopeCloudPlatform // the caller's are those of the service account's token
	}
	form := oauth.Exchange{Audience: e.audience, Scope: scope, RequestedTokenType: oauth.TokenTypeAccessToken,
		SubjectToken: e.oidcToken, SubjectTokenType: oauth.TokenTypeJWT}.Form()
	answer, err := transport.Send(ctx, e.client, func() (*http.Request, error) { return oauth.NewRequest(ctx, address, form) }, takesAMoment)
	if err != nil {
		return nil, unreachable(opExchange, err, e.oidcToken)
	}
	if answer.Status != http.StatusOK {
		return nil, e.exchangeError(answer)
	}
	body, err := oauth.ParseAnswer(answer.Body)
	if err != nil {
		return nil, unusable(opExchange, "it is not the JSON that it should be")
	}
	now := time.Now()
	return newToken(opExchange, body.AccessToken, body.TokenType, "", expiry(now, body.ExpiresIn), now)
}

// expiry returns the time after so many seconds, the zero time if the answer does not say how many.
func expiry(now time.Time, seconds float64) time.Time {
	const most = 100 * 365 * 24 * 3600 // a Duration can hold it
	if seconds == 0 || seconds > most {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds * float64(time.Second))).Truncate(time.Second)
}

// newRequest makes a request. bearer may be empty.
func newRequest(ctx context.Context, method, address, contentType, body, bearer string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return req, nil
}
