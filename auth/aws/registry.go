package aws

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/awsname"
)

const (
	opRegistry = "get an authorization token of Amazon ECR"

	// registryUser is the only user name of ECR.
	registryUser = "AWS"

	// The input holds the registry's region and the endpoint: a password
	// depends on nothing else.
	publicInput   = "public"
	fipsFlag      = " fips"
	dualStackFlag = " dual-stack"

	// maxRegistryLife is the lifetime of an authorization token, 12 hours, plus
	// one hour of clock skew.
	maxRegistryLife = 13 * time.Hour
)

var (
	_ provider.ArtifactRegistryCredentialsProvider = (*Provider)(nil)
	_ provider.RegistryOwner                       = (*Provider)(nil)
)

// ParseArtifactRepository accepts repositories in Amazon ECR, of all
// partitions, and in ECR Public:
//
//	<account>.dkr.ecr[-fips].<region>.<suffix>/<repository>
//	<account>.dkr-ecr[-fips].<region>.on.aws/<repository>
//	public.ecr.aws/<alias>/<repository>
func (*Provider) ParseArtifactRepository(artifactRepository string,
	_ *provider.Options) (registryInput string, err error) {
	if region, ok := awsname.RegionOfPlainRegistry(artifactRepository); ok {
		return region, nil
	}
	host, err := provider.RegistryHost(artifactRepository)
	if err != nil {
		return "", err
	}
	r, ok := awsname.ParseRegistry(host)
	switch {
	case !ok:
		return "", self.Misconfigured("use <account>.dkr.ecr.<region>.amazonaws.com/<repository>, or choose another provider",
			"%.300q is not a registry of Amazon ECR", host)
	case r.Public:
		return publicInput, nil
	}
	input := r.Region
	if r.FIPS {
		input += fipsFlag
	}
	if r.DualStack {
		input += dualStackFlag
	}
	return input, nil
}

// OwnsRegistry implements [provider.RegistryOwner] for the hosts of AWS that
// are named as registries of ECR. A Keychain is not anonymous there.
func (*Provider) OwnsRegistry(host string) bool { return awsname.LooksLikeRegistry(host) }

func readRegistryInput(input string) awsname.Registry {
	if input == publicInput {
		r, _ := awsname.ParseRegistry("public.ecr.aws")
		return r
	}
	region, _, _ := strings.Cut(input, " ")
	return awsname.Registry{Region: region,
		FIPS: strings.Contains(input, fipsFlag), DualStack: strings.Contains(input, dualStackFlag)}
}

// GetAccessTokenOptionsForArtifactRepository selects STS in the registry's
// region, unless the caller chose a region.
func (*Provider) GetAccessTokenOptionsForArtifactRepository(registryInput string, opts *provider.Options,
) ([]provider.Option, error) {
	return inRegion(readRegistryInput(registryInput).Region, opts), nil
}

// inRegion is nil and allocates nothing if the caller chose a region.
func inRegion(region string, opts *provider.Options) []provider.Option {
	if opts.STSRegion != "" {
		return nil
	}
	return []provider.Option{func(o *provider.Options) { o.STSRegion = region }}
}

// NewArtifactRegistryCredentials asks ECR for a password
// (ecr:GetAuthorizationToken; for the public registry
// ecr-public:GetAuthorizationToken and sts:GetServiceBearerToken).
func (p *Provider) NewArtifactRegistryCredentials(ctx context.Context, registryInput string, accessToken auth.Token,
	opts *provider.Options) (*auth.ArtifactRegistryCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	registry := readRegistryInput(registryInput)
	authorization := p.privateAuthorization
	if registry.Public {
		authorization = p.publicAuthorization
	}
	encoded, expiry, err := authorization(ctx, registry, token, opts)
	if err != nil {
		return nil, err
	}
	return registryCredentials(encoded, aws.ToTime(expiry), time.Now())
}

func (p *Provider) privateAuthorization(ctx context.Context, r awsname.Registry, token *Token, opts *provider.Options,
) (encoded string, expiry *time.Time, err error) {
	o := ecr.Options{Region: r.Region, HTTPClient: p.clients.ForTokens(opts), Credentials: token.provider(),
		Retryer: p.newRetryer()}
	o.EndpointOptions.UseFIPSEndpoint = fips(p.UseFIPSEndpoint || r.FIPS)
	o.EndpointOptions.UseDualStackEndpoint = dualStack(p.UseDualStackEndpoint || r.DualStack)
	out, err := ecr.New(o).GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return "", nil, registryError(err, "ecr:GetAuthorizationToken", token)
	}
	for _, data := range out.AuthorizationData {
		return aws.ToString(data.AuthorizationToken), data.ExpiresAt, nil
	}
	return "", nil, nil
}

func (p *Provider) publicAuthorization(ctx context.Context, r awsname.Registry, token *Token, opts *provider.Options,
) (encoded string, expiry *time.Time, err error) {
	o := ecrpublic.Options{Region: r.Region, HTTPClient: p.clients.ForTokens(opts), Credentials: token.provider(),
		Retryer: p.newRetryer()}
	o.EndpointOptions.UseFIPSEndpoint = fips(p.UseFIPSEndpoint)
	o.EndpointOptions.UseDualStackEndpoint = dualStack(p.UseDualStackEndpoint)
	out, err := ecrpublic.New(o).GetAuthorizationToken(ctx, &ecrpublic.GetAuthorizationTokenInput{})
	if err != nil {
		return "", nil, registryError(err, "ecr-public:GetAuthorizationToken and sts:GetServiceBearerToken", token)
	}
	if out.AuthorizationData == nil {
		return "", nil, nil
	}
	return aws.ToString(out.AuthorizationData.AuthorizationToken), out.AuthorizationData.ExpiresAt, nil
}

func registryError(err error, permissions string, token *Token) error {
	e := serviceError(err, opRegistry, token)
	if e.Code == "AccessDeniedException" {
		e.Remedy = "allow the role " + permissions + ` on the resource "*"`
	}
	return e
}

// registryCredentials refuses an answer of ECR that cannot be used. The form is
// base64 of "AWS:<password>". Passwords hold colons.
func registryCredentials(encoded string, expiry, now time.Time) (*auth.ArtifactRegistryCredentials, error) {
	unusable := func(format string, args ...any) error { return self.Unusable(opRegistry, "ECR", format, args...) }
	if encoded == "" {
		return nil, unusable("it holds no authorization token")
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, unusable("the authorization token is not base64")
	}
	password, found := strings.CutPrefix(string(decoded), registryUser+":")
	if !found || password == "" {
		return nil, unusable("the authorization token is not %s:<password>", registryUser)
	}
	if err := provider.CheckExpiry(expiry, now, maxRegistryLife); err != nil {
		return nil, unusable("the authorization token: %v", err)
	}
	return provider.NewArtifactRegistryCredentials(registryUser, password, expiry), nil
}
