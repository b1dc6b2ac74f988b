package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/tracing"
)

// plan returns the request for the credential: its key, its tenant, the
// credentials that it is made of, and the function that makes it. It uses no
// network and holds no state. It may run any number of times, concurrently and
// after the call.
func (s *resolved) plan(k *keyBuilder) cache.Request {
	r := cache.Request{
		Key:      k.sum(),
		Object:   s.opts.InvolvedObject,
		Tenant:   s.tenant(),
		Provider: s.name,
		Patient:  s.opts.patient,
		Classify: classify,

		MinimumLifetime: s.opts.MinimumLifetime,
		InvalidBefore:   s.opts.invalidBefore,
	}
	switch chained, isChained := s.provider.(provider.ChainedTokenProvider); {
	case s.product != nil:
		r.Needs = func() ([]cache.Request, error) { return s.planAll(s.product.lists) }
		r.Mint = s.derive
	case isChained:
		r.Group = k.group(s.opts.owner().Namespace)
		s.planChained(chained, &r)
	default:
		r.Group = k.group(s.opts.owner().Namespace)
		r.Mint = s.exchange
	}
	return r
}

// planChained plans an access token that may be made of another one. A cached
// token needs no lookup of the chain.
func (s *resolved) planChained(chained provider.ChainedTokenProvider, r *cache.Request) {
	r.Needs = func() ([]cache.Request, error) {
		if previous := chained.GetAccessTokenOptionsForChain(&s.opts.Options); previous != nil {
			return s.planAll([][]provider.Option{previous})
		}
		return nil, nil
	}
	r.Mint = func(ctx context.Context, previous []Token) (cache.Minted, error) {
		if len(previous) == 0 {
			return s.exchange(ctx, nil)
		}
		return s.made(ctx, func(ctx context.Context) (Token, error) {
			return chained.NewChainedToken(ctx, previous[0], &s.opts.Options)
		})
	}
	r.Classify = func(err error) cache.Failure {
		f := classify(err)
		f.RefusesNeeds = chained.RefusesPrevious(err) // only a new one can help
		return f
	}
}

// key collects everything that shapes the credential. A token of the caller's
// own source is a part: its claims are not verified yet, so only callers that
// hold the same token may share its credential.
func (s *resolved) key() *keyBuilder {
	k := &s.builder
	*k = keyBuilder{inputs: s.scratch[:0]}
	k.Add("provider", s.name)
	k.Add("cluster", s.opts.ClusterID)
	if sa := s.account; sa != nil {
		k.Add("identity", s.identity)
		k.Add("name", sa.Name)
		k.Add("namespace", sa.Namespace)
		k.Add("uid", string(sa.UID))
		k.AddList("audiences", s.audiences)
	} else {
		k.AddList("own audiences", s.opts.Audiences)
	}
	k.AddList("scopes", s.opts.Scopes)
	k.Add("region", s.opts.STSRegion)
	k.Add("endpoint", s.opts.STSEndpoint)
	if source := s.opts.SubjectIssuer; source != nil {
		k.Add("source", source.Key())
		k.Add("issuer", s.opts.TokenIssuer)
		k.Add("subject", s.opts.TokenSubject)
		k.Add("subject identity", s.subjectIdentity)
	}
	if s.lifetime != 0 {
		k.Add("lifetime", s.lifetime.String())
	} else if s.opts.TokenLifetime != 0 {
		k.Add("own lifetime", s.opts.TokenLifetime.String())
	}
	if b := s.opts.BoundObject; b != nil {
		k.AddVariation("bound object", []string{b.APIVersion, b.Kind, b.Name, string(b.UID)})
	}
	if s.opts.IsOwnIdentity() && s.opts.AllowShellOut {
		k.Add("shell out", "true")
	}
	if jwt := s.jwt.Reveal(); jwt != "" {
		sum := sha256.Sum256([]byte(jwt))
		k.Add("token", string(sum[:]))
	}
	if s.opts.ProxyURL != nil {
		k.Add("proxy", s.opts.ProxyURL.String())
	}
	k.inputs = append(k.inputs, nextPart)
	if p, ok := s.provider.(provider.CacheKeyContributor); ok {
		p.AddToCacheKey(k, s.account, &s.opts.Options)
	}
	k.inputs = append(k.inputs, nextPart)
	if s.product != nil {
		for _, input := range s.product.inputs {
			k.Add(input[0], input[1])
		}
	}
	return k
}

// planAll plans the access tokens that a credential is made of, one for each
// list of further options.
func (s *resolved) planAll(lists [][]provider.Option) (plans []cache.Request, err error) {
	if err := checkCAData(s.opts.CAData); err != nil {
		return nil, s.describe(err)
	}
	for _, list := range lists {
		of := *s
		of.product = nil
		of.opts.applyToAccessToken(list)
		if err := validateOptions(of.provider, &of.opts.Options); err != nil {
			return nil, s.describe(err)
		}
		plans = append(plans, of.plan(of.key()))
	}
	return plans, nil
}

// exchange makes an access token of a subject token, or of the controller's own
// identity. Its errors are complete, because the cache hands them to many
// callers.
func (s *resolved) exchange(ctx context.Context, _ []Token) (cache.Minted, error) {
	return traced(ctx, s, "Exchange", func(ctx context.Context) (cache.Minted, error) {
		if s.account == nil {
			token, err := s.provider.NewControllerToken(ctx, &s.opts.Options)
			return s.checked(token, err, "")
		}
		jwt, until, err := s.subjectToken(ctx)
		if err != nil {
			return cache.Minted{}, s.describe(err)
		}
		token, err := s.provider.NewTokenForServiceAccount(ctx, jwt, s.account.DeepCopy(), &s.opts.Options)
		made, err := s.checked(token, err, jwt)
		made.Until = until
		return made, err
	})
}

func (s *resolved) derive(ctx context.Context, tokens []Token) (cache.Minted, error) {
	return s.made(ctx, func(ctx context.Context) (Token, error) {
		return s.product.make(ctx, tokens, &s.opts.Options)
	})
}

// made calls combine, which makes a credential of other credentials.
func (s *resolved) made(ctx context.Context, combine func(context.Context) (Token, error)) (cache.Minted, error) {
	return traced(ctx, s, "Derive", func(ctx context.Context) (cache.Minted, error) {
		token, err := combine(ctx)
		return s.checked(token, err, "")
	})
}

func (s *resolved) checked(token Token, err error, jwt string) (cache.Minted, error) {
	switch {
	case err != nil:
		return cache.Minted{}, s.describe(s.opts.hideProxy(clean(err, jwt)))
	case isNil(token):
		return cache.Minted{}, s.describe(unavailable("", "the provider returned no token and no error"))
	case token.GetDuration() <= 0:
		return cache.Minted{},
			s.describe(unavailable("check that the clocks agree", "the provider returned a token that has expired"))
	}
	return cache.Minted{Token: token}, nil
}

// subjectToken returns a token of the subject that may be sent out. until
// bounds the lifetime of the credential made from it; zero means unbounded.
func (s *resolved) subjectToken(ctx context.Context) (jwt string, until time.Time, err error) {
	if s.opts.SubjectIssuer != nil {
		return s.issueSubjectToken(ctx)
	}
	if jwt = s.jwt.Reveal(); jwt == "" {
		source := TokenRequest{Client: s.opts.Client, ServiceAccount: s.account,
			Lifetime: s.lifetime, BoundObject: s.opts.BoundObject}
		jwt, err = traced(ctx, s, "TokenRequest", func(ctx context.Context) (string, error) {
			jwt, _, err := source.request(ctx, s.audiences)
			return jwt, err
		})
		if err != nil {
			return "", until, err
		}
	}
	return jwt, until, checkSubjectToken(jwt, time.Now(), s.audiences, claimsOf(s.account), s.opts.Policy)
}

// issueSubjectToken is subjectToken for a SubjectIssuer.
func (s *resolved) issueSubjectToken(ctx context.Context) (jwt string, until time.Time, err error) {
	sa, audiences := s.issuersAccount().DeepCopy(), slices.Clone(s.audiences)
	jwt, err = traced(ctx, s, "SubjectToken", func(ctx context.Context) (jwt string, err error) {
		jwt, until, err = s.opts.SubjectIssuer.Token(ctx, sa, audiences, &s.opts)
		return jwt, sourceError(err, jwt) // spans show it too
	})
	now := time.Now()
	switch {
	case err != nil:
		return "", until, err
	case jwt == "":
		return "", until, misconfigured("have the issuer return a token or an error",
			"the issuer of subject tokens returned none")
	case strings.ContainsFunc(jwt, func(r rune) bool { return r <= ' ' || r > '~' }): // it may become a header
		return "", until, misconfigured("have the source return the JWT alone",
			"the subject token holds characters that no JWT has")
	case !until.IsZero() && !until.After(now):
		return "", until, checkExpiry(until, now)
	}
	want := &subjectClaims{issuer: s.opts.TokenIssuer, subject: s.opts.TokenSubject}
	if err := checkSubjectToken(jwt, now, s.audiences, want, s.opts.Policy); err != nil || until.IsZero() {
		return jwt, until, err
	}
	claims, err := parseClaims(jwt)
	if err == nil && claims.Expiry.Before(until) {
		until = claims.Expiry.Time
	}
	return jwt, until, err
}

// unverifiedToken is the tenant of all tokens in hand without an owner: a
// forged one could name any namespace and take its slots.
const unverifiedToken = "unverified token"

// tenant returns the tenant whose slots in the cache an exchange takes. A value
// with a blank cannot be a namespace.
func (s *resolved) tenant() string {
	tenant := s.opts.tenantOfCluster(s.product != nil)
	if id := s.opts.ClusterID; id != "" {
		return id + " " + tenant
	}
	return tenant
}

// tenantOfCluster prefers the owner's namespace for the controller's own
// identity and for a token in hand. It also prefers it where an object names
// something that might hang: a region, an address, or the cluster, registry or
// repository of a derived credential.
func (o *Options) tenantOfCluster(derived bool) string {
	subject := o.subject()
	owner, own, inHand := o.owner().Namespace, subject.Name == "", o.SubjectServiceAccount != nil
	switch {
	case owner != "" && (own || inHand || derived || o.STSRegion+o.STSEndpoint != "" || o.ProxyURL != nil):
		return owner
	case inHand:
		return unverifiedToken
	case !own:
		return subject.Namespace
	case o.STSRegion != "":
		return "region " + o.STSRegion
	}
	return ""
}

// traced calls f, in a span if there is a TracerProvider. The identity may be a
// role that does not exist, but is never secret.
func traced[T any](ctx context.Context, s *resolved, name string,
	f func(context.Context) (T, error)) (result T, err error) {
	if s.opts.TracerProvider == nil {
		return f(ctx)
	}
	account := s.opts.subject()
	ctx, span := tracing.Start(ctx, s.opts.TracerProvider, "auth", name,
		tracing.Provider.String(s.name), tracing.Operation.String(s.operation),
		tracing.Namespace.String(account.Namespace), tracing.ServiceAccount.String(account.Name),
		tracing.Identity.String(s.identity))
	defer func() {
		reason := ErrUnavailable
		if known := (*Error)(nil); errors.As(err, &known) {
			reason = reasonOf(known)
		}
		tracing.End(span, err, string(reason))
	}()
	return f(ctx)
}
