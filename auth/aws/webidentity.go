package aws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/awsname"
)

const opWebIdentity = "get web identity token of the role"

// WebIdentity configures a [WebIdentityIssuer]. The zero value is ready for
// use. The controller sets all fields: tenants choose only their role.
type WebIdentity struct {
	// RoleARN is the controller's own role, the subject of calls without a
	// ServiceAccount. Empty refuses those calls.
	RoleARN string
	// Issuers are the issuers of AWS accounts by account ID, as
	// iam:GetOutboundWebIdentityFederationInfo returns them. The token of a
	// listed account has to have its issuer. The token of another account may
	// have any issuer: the receiver checks it.
	Issuers map[string]string
	// SigningAlgorithm is RS256, the default, or ES384. Microsoft Entra ID and
	// Google Cloud accept RS256.
	SigningAlgorithm string
	// Lifetime is the lifetime of the tokens, 1 minute to 1 hour in whole
	// seconds. 0 means 5 minutes, the default of STS. Credentials of Google
	// Cloud and other services never outlive the token: an hour saves exchanges
	// there.
	Lifetime time.Duration
	// Tags become the claim request_tags, at most 50.
	Tags map[string]string
}

// WebIdentityIssuer makes an AWS role the subject of other services: Microsoft
// Entra ID, Google Cloud, and the services of package exchange. It implements
// [auth.SubjectIssuer] with sts:GetWebIdentityToken.
//
// The subject is the ARN of the role: the one in the ServiceAccount's
// annotation [RoleARNAnnotation], or [WebIdentity.RoleARN] for the controller's
// own identity (EKS Pod Identity, IAM roles for service accounts, a node). A
// chain of [WithAssumeRole] makes its last role the subject.
// [auth.GetAccessToken] obtains the role's credentials, with the owner, Policy,
// cache, cluster ID and ServiceAccount of the call. Nothing else of the call
// reaches AWS: audiences, scopes, proxy and STS options configure the other
// service.
//
// Once, an administrator enables outbound federation in the AWS account
// (iam:EnableOutboundWebIdentityFederation) and grants the role
// sts:GetWebIdentityToken. AWS itself accepts no such token for a role. It is
// safe for concurrent use.
type WebIdentityIssuer struct {
	provider *Provider
	config   WebIdentity
	opts     []auth.Option
	resolved auth.Options // opts alone
	chained  string       // the last role of WithAssumeRole, if any
	key      string
}

var (
	_ auth.SubjectIssuer = (*WebIdentityIssuer)(nil)
)

// NewWebIdentityIssuer returns a source that uses p. The options are the
// controller's for the role's credentials and for STS: region, HTTP client,
// proxy, further roles. STS has the operation at regional endpoints only.
// Neither the options nor the fields of p may change any more.
func (p *Provider) NewWebIdentityIssuer(config WebIdentity, opts ...auth.Option) (*WebIdentityIssuer, error) {
	s := &WebIdentityIssuer{provider: p, config: config, opts: slices.Clone(opts)}
	s.config.Issuers, s.config.Tags = maps.Clone(config.Issuers), maps.Clone(config.Tags)
	for _, opt := range opts {
		if opt != nil {
			opt(&s.resolved)
		}
	}
	if s.config.SigningAlgorithm == "" {
		s.config.SigningAlgorithm = "RS256"
	}
	if s.config.Lifetime == 0 {
		s.config.Lifetime = defaultWebIdentityLife
	}
	if role, _ := lastRole(&s.resolved.Options); role != nil {
		s.chained = role.RoleARN
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	s.key = s.newKey()
	return s, nil
}

const (
	minWebIdentityLife, defaultWebIdentityLife, maxWebIdentityLife = time.Minute, 5 * time.Minute, time.Hour
	// webIdentitySlack is left of the role's session after the token's expiry,
	// for clock skew.
	webIdentitySlack = 10 * time.Second
)

func (s *WebIdentityIssuer) check() error {
	wrong := func(option, format string, args ...any) error {
		e := self.Misconfigured("correct it", format, args...).About(option)
		e.Operation = opWebIdentity
		return e
	}
	c, endpoint := &s.config, s.resolved.STSEndpoint
	if c.RoleARN != "" {
		if _, err := ParseRoleARN(c.RoleARN); err != nil {
			return wrong("aws.WebIdentity.RoleARN", "it is not the ARN of a role: %v: %.600q", err, c.RoleARN)
		}
	}
	if c.SigningAlgorithm != "RS256" && c.SigningAlgorithm != "ES384" {
		return wrong("aws.WebIdentity.SigningAlgorithm", "the algorithm is RS256 or ES384, not %.100q", c.SigningAlgorithm)
	}
	if d := c.Lifetime; d < minWebIdentityLife || d > maxWebIdentityLife || d%time.Second != 0 {
		return wrong("aws.WebIdentity.Lifetime", "a token is valid for 1 minute to 1 hour, in whole seconds, not for %s", d)
	}
	if err := checkTags(c.Tags, "aws.WebIdentity.Tags"); err != nil {
		return err
	}
	target := &provider.Options{STSRegion: s.resolved.STSRegion, STSEndpoint: endpoint}
	if err := s.provider.ValidateOptions(target); err != nil {
		return err
	}
	if host := hostOf(endpoint); endpoint != "" && (host == "" || isGlobalSTS(host)) {
		return self.Misconfigured("use a regional endpoint of AWS STS, or leave it out",
			"only regional endpoints of AWS issue tokens, not %.300q", host).About("auth.WithSTSEndpoint")
	}
	return nil
}

// isGlobalSTS recognizes a host of STS without a region.
func isGlobalSTS(host string) bool {
	return !slices.ContainsFunc(strings.Split(host, "."), awsname.ValidRegion)
}

// sourceKey collects the inputs that shape the tokens, besides issuer, subject
// and audiences.
type sourceKey struct{ strings.Builder }

func (k *sourceKey) Add(name, value string)                    { fmt.Fprintf(k, "%q %q\n", name, value) }
func (k *sourceKey) AddList(name string, values []string)      { fmt.Fprintf(k, "%q %q\n", name, values) }
func (k *sourceKey) AddVariation(name string, values []string) { k.AddList(name, values) }

func (s *WebIdentityIssuer) newKey() string {
	k, o := &sourceKey{}, &s.resolved.Options
	s.provider.AddToCacheKey(k, nil, o)
	k.AddList("sts", []string{o.STSRegion, o.STSEndpoint})
	k.AddList("token", []string{s.config.SigningAlgorithm, s.config.Lifetime.String()})
	for _, name := range slices.Sorted(maps.Keys(s.config.Tags)) {
		k.AddList("tag", []string{name, s.config.Tags[name]})
	}
	sum := sha256.Sum256([]byte(k.String()))
	return "aws web identity " + hex.EncodeToString(sum[:])
}

// Key implements [auth.SubjectIssuer].
func (s *WebIdentityIssuer) Key() string { return s.key }

// Subject implements [auth.SubjectIssuer]: the issuer of the role's account, if
// it is known, and the ARN of the role. For the last role of a chain, the
// Identity is the first.
func (s *WebIdentityIssuer) Subject(sa *corev1.ServiceAccount, _ *auth.Options) (auth.SubjectClaims, error) {
	claims, err := auth.SubjectClaims{Subject: s.config.RoleARN}, error(nil)
	switch {
	case sa == nil && s.config.RoleARN == "" && s.chained == "":
		return claims, self.Misconfigured("name it, or a ServiceAccount", "the controller's own role is not known").
			About("aws.WebIdentity.RoleARN", "auth.WithServiceAccount")
	case sa != nil:
		claims.Subject, err = s.provider.GetIdentity(sa, &s.resolved.Options)
	}
	if s.chained != "" {
		claims.Subject, claims.Identity = s.chained, claims.Subject
	}
	_, rest, _ := strings.Cut(claims.Subject, "::") // splitting all of it would allocate on hits
	account, _, _ := strings.Cut(rest, ":")
	claims.Issuer = s.config.Issuers[account]
	return claims, err
}

// Token implements [auth.SubjectIssuer]. The expiry is zero: the credential of
// the other service has that service's lifetime.
func (s *WebIdentityIssuer) Token(ctx context.Context, _ *corev1.ServiceAccount, audiences []string, opts *auth.Options,
) (jwt string, expiry time.Time, err error) {
	jwt, err = s.token(ctx, audiences, opts)
	if err != nil && s.provider.RefusesPrevious(err) {
		jwt, err = s.token(ctx, audiences, opts, auth.WithInvalidBefore(time.Now()))
	}
	return jwt, time.Time{}, err
}

func (s *WebIdentityIssuer) token(ctx context.Context, audiences []string, call *auth.Options, more ...auth.Option,
) (string, error) {
	token, err := auth.GetAccessToken(ctx, s.provider, append(s.optionsFor(call), more...)...)
	if err != nil {
		return "", err
	}
	from, err := FromToken(token)
	if err != nil {
		return "", err
	}
	// STS refuses a token that would outlive the role's session.
	life := max(min(s.config.Lifetime, from.GetDuration()-webIdentitySlack), minWebIdentityLife)
	in := &sts.GetWebIdentityTokenInput{Audience: audiences, SigningAlgorithm: &s.config.SigningAlgorithm,
		DurationSeconds: aws.Int32(int32(life / time.Second))} //nolint:gosec // an hour at most
	for _, key := range slices.Sorted(maps.Keys(s.config.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: &key, Value: aws.String(s.config.Tags[key])})
	}
	out, err := s.provider.stsClient(&s.resolved.Options, from.provider()).GetWebIdentityToken(ctx, in)
	if err != nil {
		return "", webIdentityError(err, from, audiences)
	}
	if aws.ToString(out.WebIdentityToken) == "" {
		return "", self.Unusable(opWebIdentity, "STS", "it holds no token")
	}
	return *out.WebIdentityToken, nil
}

// optionsFor returns the options of the role's credentials. It drops the
// options for the other service.
func (s *WebIdentityIssuer) optionsFor(call *auth.Options) []auth.Option {
	opts := append(slices.Clone(s.opts),
		auth.WithCache(call.Cache, call.InvolvedObject), auth.WithOwner(call.Owner), auth.WithClusterID(call.ClusterID),
		auth.WithSettings(call.Settings), auth.WithUsage(call.Usage), auth.WithTracerProvider(call.TracerProvider),
		auth.WithMinimumLifetime(s.config.Lifetime+minWebIdentityLife))
	if call.Policy != nil {
		policy := *call.Policy
		policy.AllowProxy = nil // a proxy is one of s.opts, which no object chooses
		opts = append(opts, auth.WithPolicy(policy))
	}
	if call.ServiceAccount != nil {
		opts = append(opts, auth.WithServiceAccount(*call.ServiceAccount, call.Client),
			auth.WithAnnotations(call.Annotations))
	}
	return opts
}

// webIdentityError explains why STS issued no token. Codes of STS come with and
// without the suffix Exception.
func webIdentityError(err error, from *Token, audiences []string) error {
	e := classify(err, opWebIdentity, from.secrets()...)
	e.Message = fmt.Sprintf("audiences %.300q: %s", audiences, e.Message)
	switch strings.TrimSuffix(e.Code, "Exception") {
	case "OutboundWebIdentityFederationDisabled":
		e.Reason = auth.ErrMisconfigured
		e.Remedy = fmt.Sprintf("run aws iam enable-outbound-web-identity-federation once in the account %q", from.AccountID())
	case "SessionDurationEscalation":
		e.Reason = auth.ErrUnavailable
		e.Remedy = "try again once the role's credentials are renewed, or use a shorter lifetime of tokens"
	case "JWTPayloadSizeExceeded":
		e.Reason, e.Remedy = auth.ErrMisconfigured, "use fewer or shorter tags"
	case "InvalidAction":
		e.Reason, e.Remedy = auth.ErrMisconfigured, "use a region whose STS issues tokens"
	case "AccessDenied":
		e.Remedy = "let a policy of the role allow sts:GetWebIdentityToken for these audiences"
	}
	return e
}
