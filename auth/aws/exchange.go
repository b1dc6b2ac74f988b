package aws

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/awsname"
)

const (
	opAssumeRole = "assume role with web identity"

	maxAttempts = 3
	maxDelay    = 5 * time.Second
)

// NewTokenForServiceAccount exchanges the ServiceAccount's token for
// credentials of its own role, the first of a chain.
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount,
	opts *provider.Options) (auth.Token, error) {
	arn := opts.Identity
	if err := p.checkPartition(arn, opts); err != nil {
		return nil, err
	}
	session := defaultSession(opts) // of the controller's own identity
	if sa.Name != "" {
		session = sessionName(sessionPrefix(opts), sa.Namespace, sa.Name)
	}
	out, err := p.stsClient(opts, aws.AnonymousCredentials{}).AssumeRoleWithWebIdentity(ctx,
		&sts.AssumeRoleWithWebIdentityInput{
			RoleArn: &arn, RoleSessionName: &session, WebIdentityToken: &oidcToken, DurationSeconds: durationSeconds(opts)})
	if err != nil {
		return nil, p.exchangeError(err, arn, sa, opts, oidcToken)
	}
	return p.sessionToken(opAssumeRole, out.Credentials, out.AssumedRoleUser, session, opts)
}

// checkPartition refuses a role outside the partition of the region, because
// STS does not explain that. An endpoint of the caller need not lie in the
// region.
func (p *Provider) checkPartition(arn string, opts *provider.Options) error {
	region := p.stsRegion(opts)
	partition, known := awsname.PartitionOf(region)
	if opts.STSEndpoint != "" || !known || strings.HasPrefix(arn, "arn:"+partition.Name+":") {
		return nil
	}
	return self.Misconfigured("set a region of the role's own partition, or AWS_REGION to one",
		"the role %q is not in the partition %q of the region %q", arn, partition.Name, region).About("auth.WithSTSRegion")
}

// stsClient uses explicit options only: nothing of the environment signs or
// directs the request.
func (p *Provider) stsClient(opts *provider.Options, credentials aws.CredentialsProvider) *sts.Client {
	o := sts.Options{Region: p.stsRegion(opts), HTTPClient: p.clients.ForTokens(opts), Credentials: credentials,
		Retryer: p.newRetryer()}
	if opts.STSEndpoint != "" {
		o.BaseEndpoint = &opts.STSEndpoint
		o.Region = cmp.Or(awsname.STSRegion(hostOf(opts.STSEndpoint)), o.Region) // the region of the signature
	} else {
		o.EndpointOptions.UseFIPSEndpoint = fips(p.UseFIPSEndpoint)
		o.EndpointOptions.UseDualStackEndpoint = dualStack(p.UseDualStackEndpoint)
	}
	return sts.New(o)
}

func (p *Provider) newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = maxAttempts
		o.MaxBackoff = cmp.Or(p.maxDelay, maxDelay)
		o.Retryables = append(o.Retryables, retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			return aws.BoolTernary(isTransient(err))
		}))
	})
}

func fips(on bool) aws.FIPSEndpointState {
	if on {
		return aws.FIPSEndpointStateEnabled
	}
	return aws.FIPSEndpointStateUnset
}

func dualStack(on bool) aws.DualStackEndpointState {
	if on {
		return aws.DualStackEndpointStateEnabled
	}
	return aws.DualStackEndpointStateUnset
}

// maxSession is the longest session of AWS, maxOtherSession the longest of
// MinIO. Both add one hour for clock skew.
const maxSession, maxOtherSession = 13 * time.Hour, 365*24*time.Hour + time.Hour

// maxAccessKeyID is from the model of IAM, in characters.
const maxAccessKeyID = 128

// sessionToken refuses an answer of STS that cannot be used.
func (p *Provider) sessionToken(operation string, c *types.Credentials, user *types.AssumedRoleUser, session string,
	opts *provider.Options) (auth.Token, error) {
	unusable := func(format string, args ...any) error { return self.Unusable(operation, "STS", format, args...) }
	if c == nil {
		return nil, unusable("it holds no credentials")
	}
	longest := maxSession
	if isOtherService(opts) {
		longest = maxOtherSession
	}
	parts := [partCount]string{partKeyID: aws.ToString(c.AccessKeyId), partSecret: aws.ToString(c.SecretAccessKey),
		partSessionToken: aws.ToString(c.SessionToken), partSession: session}
	for i, name := range []string{"AccessKeyId", "SecretAccessKey", "SessionToken"} {
		if parts[i] == "" {
			return nil, unusable("%s is missing", name)
		}
	}
	if id := parts[partKeyID]; !allOf(id, "_") || len(id) > maxAccessKeyID {
		return nil, unusable("AccessKeyId is malformed") // it shows in logs
	}
	if err := provider.CheckExpiry(aws.ToTime(c.Expiration), time.Now(), longest); err != nil {
		return nil, unusable("%v", err)
	}
	if user != nil {
		parts[partPartition], parts[partAccount], parts[partRole] = cutSession(aws.ToString(user.Arn), session)
	}
	if t := newToken(*c.Expiration, parts); t != nil {
		return t, nil
	}
	return nil, unusable("the credentials are malformed")
}

// TokenServiceURL returns the address of STS for an exchange with these
// options. It uses no network. It fails with the error of ValidateOptions.
func (p *Provider) TokenServiceURL(opts *provider.Options) (string, error) {
	if err := p.ValidateOptions(opts); err != nil {
		return "", err
	}
	if opts.STSEndpoint != "" {
		return opts.STSEndpoint, nil
	}
	endpoint, err := sts.NewDefaultEndpointResolverV2().ResolveEndpoint(context.Background(), sts.EndpointParameters{
		Region: aws.String(p.stsRegion(opts)), UseFIPS: &p.UseFIPSEndpoint, UseDualStack: &p.UseDualStackEndpoint})
	if err != nil {
		return "", self.Misconfigured("use another region", "%v", err)
	}
	return endpoint.URI.String(), nil
}

// hostOf returns the host of an endpoint that checkSTSEndpoint has accepted.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || !awsname.IsSTSHost(u.Hostname()) {
		return ""
	}
	return u.Hostname()
}

// otherService returns the host of a service other than AWS, with its port, ""
// if these options name none. ValidateOptions has allowed it.
func otherService(opts *provider.Options) string {
	if opts.STSEndpoint == "" || hostOf(opts.STSEndpoint) != "" {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(opts.STSEndpoint, "https://"), "/")
}

func isOtherService(opts *provider.Options) bool { return otherService(opts) != "" }

// checkSTSEndpoint accepts an STS endpoint of AWS or an allowed host. That host
// receives the ServiceAccount's token.
func checkSTSEndpoint(endpoint string, allowed []string) error {
	u, err := address.Parse("STS endpoint", endpoint, 0)
	switch {
	case err != nil:
		return err
	case slices.Contains(allowed, u.Host), awsname.IsSTSHost(u.Hostname()) && (u.Port() == "" || u.Port() == "443"):
		return nil
	}
	return address.Refuse("STS endpoint", endpoint, "it is not one of AWS STS")
}

const (
	maxSessionName = 64
	sessionHash    = 32 // hexadecimal digits
)

// controllerSession is the session name of a role that the controller assumes
// for itself. Session names of ServiceAccounts hold a dot.
const controllerSession = "workloadid"

// sessionName returns the role session name of a ServiceAccount. No two
// ServiceAccounts share one: neither prefix nor namespace holds a dot, "=" or
// "@", so "[<prefix>=]<namespace>.<name>" is unambiguous. Names that are too
// long for AWS hold an "@", which no part can.
func sessionName(prefix, namespace, name string) string {
	whole := namespace + "." + name
	if prefix != "" {
		whole = prefix + "=" + whole
	}
	if len(whole) <= maxSessionName {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	return whole[:maxSessionName-sessionHash-1] + "@" + hex.EncodeToString(sum[:])[:sessionHash]
}

// defaultSession is the session name of a role whose options have none.
func defaultSession(opts *provider.Options) string {
	if opts.IsOwnIdentity() {
		return cmp.Or(sessionPrefix(opts), controllerSession)
	}
	return sessionName(sessionPrefix(opts), opts.Subject.Namespace, opts.Subject.Name)
}

// validSessionPart accepts session names and source identities.
func validSessionPart(s string) bool { return len(s) <= maxSessionName && allOf(s, "+=,.@-_") }

const opChainRole = "assume a further role"

// GetChain returns the ARNs of the roles of [WithAssumeRole].
func (*Provider) GetChain(opts *provider.Options) []string {
	var arns []string
	for role := range chain(opts) {
		arns = append(arns, role.RoleARN)
	}
	return arns
}

// GetAccessTokenOptionsForChain leaves out the last role and the session
// duration, which applies to the last role.
func (*Provider) GetAccessTokenOptionsForChain(opts *provider.Options) []provider.Option {
	last, length := lastRole(opts)
	if last == nil {
		return nil
	}
	return []provider.Option{provider.WithOption(chainLengthOption{}, length-1),
		provider.WithOption(sessionDurationOption{}, nil)}
}

// NewChainedToken assumes the last role with the credentials of the role before
// it (role chaining).
func (p *Provider) NewChainedToken(ctx context.Context, previous auth.Token,
	opts *provider.Options) (auth.Token, error) {
	from, err := FromToken(previous)
	if err != nil {
		return nil, err
	}
	role, _ := lastRole(opts)
	if role == nil {
		return nil, self.Misconfigured("name one", "there is no further role to assume").About(optionAssumeRole)
	}
	if err := p.checkPartition(role.RoleARN, opts); err != nil {
		return nil, err
	}
	session := cmp.Or(role.SessionName, defaultSession(opts))
	out, err := p.stsClient(opts, from.provider()).AssumeRole(ctx, role.input(session, opts))
	if err != nil {
		return nil, chainError(err, from, role)
	}
	return p.sessionToken(opChainRole, out.Credentials, out.AssumedRoleUser, session, opts)
}

// RefusesPrevious recognizes the codes of STS for a refused signature.
func (*Provider) RefusesPrevious(err error) bool {
	var known *auth.Error
	return errors.As(err, &known) && (known.Code == "InvalidClientTokenId" || known.Code == "ExpiredToken")
}

// provider serves one request.
func (t *Token) provider() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return t.Credentials(), nil })
}

// secrets returns the parts that no message may repeat.
func (t *Token) secrets() []string {
	p := t.parts()
	return []string{p[partSecret], p[partSessionToken]}
}

func (r *chainedRole) input(session string, opts *provider.Options) *sts.AssumeRoleInput {
	in := &sts.AssumeRoleInput{
		RoleArn:           &r.RoleARN,
		RoleSessionName:   &session,
		DurationSeconds:   durationSeconds(opts),
		TransitiveTagKeys: r.TransitiveTagKeys,
		ExternalId:        optional(r.ExternalID),
		SourceIdentity:    optional(r.SourceIdentity),
		Policy:            optional(r.Policy),
	}
	for _, key := range slices.Sorted(maps.Keys(r.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: aws.String(key), Value: aws.String(r.Tags[key])})
	}
	return in
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func chainError(err error, from *Token, role *chainedRole) error {
	e := classify(err, opChainRole, from.secrets()...)
	e.Message = fmt.Sprintf("role %q: %s", role.RoleARN, e.Message)
	if e.Code == "AccessDenied" {
		e.Remedy =
			"let the role's trust policy allow sts:AssumeRole (and sts:TagSession and sts:SetSourceIdentity where used) " +
				"to the role before it, with this external ID if any, and give that role the permission"
	}
	return e
}
