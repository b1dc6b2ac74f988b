package aws

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
)

// ProviderName is the name by which users pick this provider.
const ProviderName = "aws"

const self = provider.Name(ProviderName)

// Annotations of the ServiceAccount, as in Amazon EKS.
const (
	// RoleARNAnnotation names the IAM role. Required.
	RoleARNAnnotation = annotation.AWSRoleARN
	// AudienceAnnotation replaces the audience of the ServiceAccount's token.
	// It has to be in auth.Policy.Audiences.
	AudienceAnnotation = annotation.AWSAudience
	// TokenExpirationAnnotation is the lifetime of the ServiceAccount's token
	// in seconds, at least 600.
	TokenExpirationAnnotation = annotation.AWSTokenExpiration
)

// DefaultAudience is the audience that the IAM OIDC provider of a cluster
// expects.
const DefaultAudience = "sts.amazonaws.com"

// Provider implements [auth.Provider] for AWS. The zero value is ready for use.
// It keeps connections and the configuration of the SDK, so share one in the
// whole controller. It is safe for concurrent use, as long as its fields stay
// unchanged.
type Provider struct {
	// AllowedSTSHosts are further hosts for auth.WithSTSEndpoint, with the port
	// if it is not 443. They receive the tokens of ServiceAccounts. Role names
	// at such a host may have the form of a compatible service (MinIO, Ceph):
	// any partition and region, and an account that is empty or unknown to AWS.
	// Tokens for a host that is not AWS's own have the audience https://<host>.
	AllowedSTSHosts []string
	// STSAudiences replaces that audience for hosts in AllowedSTSHosts.
	STSAudiences map[string]string
	// UseFIPSEndpoint selects endpoints that conform to FIPS 140.
	UseFIPSEndpoint bool
	// UseDualStackEndpoint selects endpoints that are reachable with IPv6 too.
	UseDualStackEndpoint bool

	clients  provider.HTTPClients
	maxDelay time.Duration // between two tries; 0 is the constant, and tests wait less

	once      sync.Once
	region    string    // of the environment
	audiences [1]string // the default, so that it is not allocated on every hit
}

var (
	_ auth.Provider                  = (*Provider)(nil)
	_ provider.OptionsValidator      = (*Provider)(nil)
	_ provider.AnnotationReader      = (*Provider)(nil)
	_ provider.CacheKeyContributor   = (*Provider)(nil)
	_ provider.TokenLifetimeProvider = (*Provider)(nil)
	_ provider.ChainedTokenProvider  = (*Provider)(nil)
)

// GetName returns [ProviderName].
func (*Provider) GetName() string { return ProviderName }

// ValidateOptions refuses a foreign STS endpoint, a missing region, and options
// that contradict each other.
func (p *Provider) ValidateOptions(opts *provider.Options) error {
	if opts.STSEndpoint != "" {
		if err := checkSTSEndpoint(opts.STSEndpoint, p.AllowedSTSHosts); err != nil {
			return self.Misconfigured("use an endpoint of AWS STS, such as https://sts.eu-central-1.amazonaws.com",
				"%v", err)
		}
	}
	if opts.OnBehalf && isOtherService(opts) {
		return self.Denied("name a ServiceAccount",
			"objects may not use the controller's own identity at the STS endpoint %q, which is not one of AWS",
			redact.URL(opts.STSEndpoint))
	}
	switch region := p.stsRegion(opts); {
	case region == "":
		return self.MisconfiguredAs(provider.CauseTargetMalformed, "set it, or the environment variable AWS_REGION",
			"the region of AWS STS is not known").About("auth.WithSTSRegion")
	case !awsname.ValidRegion(region):
		return self.MisconfiguredAs(provider.CauseTargetMalformed, "use one such as eu-central-1",
			"%.100q is not an AWS region", region).
			About("auth.WithSTSRegion")
	}
	return p.checkOptions(opts)
}

// stsRegion reads the environment once: it cannot change under a running
// program.
func (p *Provider) stsRegion(opts *provider.Options) string {
	if opts.STSRegion != "" {
		return opts.STSRegion
	}
	p.learn()
	return p.region
}

func (p *Provider) learn() {
	p.once.Do(func() {
		p.region = os.Getenv("AWS_REGION")
		p.audiences[0] = DefaultAudience
	})
}

// GetAnnotations implements [provider.AnnotationReader].
func (*Provider) GetAnnotations() []string {
	return []string{RoleARNAnnotation, AudienceAnnotation, TokenExpirationAnnotation}
}

// AddToCacheKey implements [provider.CacheKeyContributor].
func (p *Provider) AddToCacheKey(key provider.KeyBuilder, _ *corev1.ServiceAccount, opts *provider.Options) {
	if opts.STSRegion == "" {
		key.Add("awsRegion", p.stsRegion(opts))
	}
	if p.UseFIPSEndpoint {
		key.Add("awsFIPS", "true")
	}
	if p.UseDualStackEndpoint {
		key.Add("awsDualStack", "true")
	}
	addOptionsToKey(key, opts)
}

// GetAudiences returns [DefaultAudience], or the value of [AudienceAnnotation]
// if the controller allows it. A service other than AWS has its audience from
// STSAudiences, else its URL: it could use a token for AWS there.
func (p *Provider) GetAudiences(_ context.Context, sa *corev1.ServiceAccount,
	opts *provider.Options) ([]string, error) {
	audience, ok := sa.Annotations[AudienceAnnotation]
	host := otherService(opts)
	switch {
	case host != "" && (!ok || audience == p.audienceOf(host)):
		return []string{p.audienceOf(host)}, nil
	case host == "" && (!ok || audience == DefaultAudience):
		p.learn()
		return p.audiences[:], nil
	}
	if err := opts.CheckAudience(audience); err != nil {
		return nil, err
	}
	return []string{audience}, nil
}

// audienceOf returns the audience of a service other than AWS, DefaultAudience
// for no host.
func (p *Provider) audienceOf(host string) string {
	if host == "" {
		return DefaultAudience
	}
	return cmp.Or(p.STSAudiences[host], "https://"+host)
}

// GetIdentity checks and returns the role ARN of the ServiceAccount.
func (p *Provider) GetIdentity(sa *corev1.ServiceAccount, opts *provider.Options) (string, error) {
	arn, ok := sa.Annotations[RoleARNAnnotation]
	if !ok {
		return "", self.MisconfiguredAs(provider.CauseIdentityMissing,
			"set it to the ARN of the IAM role, arn:aws:iam::<account>:role/<name>",
			"the annotation %q is missing", RoleARNAnnotation)
	}
	if isPlainRole(arn) {
		return arn, nil
	}
	if _, err := parseRoleARN(arn, isOtherService(opts)); err != nil {
		return "", self.MisconfiguredAs(provider.CauseIdentityMalformed, "set it to arn:aws:iam::<account>:role/<name>",
			"the annotation %q is not the ARN of a role: %v: %.600q", RoleARNAnnotation, err, arn)
	}
	return arn, nil
}

// GetTokenLifetime returns the value of [TokenExpirationAnnotation].
func (*Provider) GetTokenLifetime(sa *corev1.ServiceAccount, _ *provider.Options) (time.Duration, error) {
	return self.TokenLifetime(TokenExpirationAnnotation, sa)
}
