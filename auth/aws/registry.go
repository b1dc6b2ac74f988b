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
	"github.com/workloadid/workloadid/internal/awsname"
)

const (
	opRegistry = "get an authorization token of Amazon ECR"

	// registryUser is the one user name that ECR knows.
	registryUser = "AWS"

	// A password depends on no more than the registry's region and the endpoint that gives it.
	publicInput   = "public"
	fipsFlag      = " fips"
	dualStackFlag = " dual-stack"

	// maxRegistryLife is what no authorization token lives longer than (12 hours), with an hour for clocks that differ.
	maxRegistryLife = 13 * time.Hour
)

var _ auth.ArtifactRegistryCredentialsProvider = (*Provider)(nil)

// ParseArtifactRepository accepts repositories in Amazon ECR, of all partitions, and in ECR Public:
//
//	<account>.dkr.ecr[-fips].<region>.<suffix>/<repository>
//	<account>.dkr-ecr.<region>.on.aws/<repository>
//	public.ecr.aws/<alias>/<repository>
func (*Provider) ParseArtifactRepository(artifactRepository string, _ *auth.Options) (registryInput string, err error) {
	if region, ok := awsname.RegionOfPlainRegistry(artifactRepository); ok {
		return region, nil
	}
	host, err := auth.RegistryHost(artifactRepository)
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

func readRegistryInput(input string) awsname.Registry {
	if input == publicInput {
		r, _ := awsname.ParseRegistry("public.ecr.aws")
		return r
	}
	region, _, _ := strings.Cut(input, " ")
	return awsname.Registry{Region: region,
		FIPS: strings.Contains(input, fipsFlag), DualStack: strings.Contains(input, dualStackFlag)}
}

// GetAccessTokenOptionsForArtifactRepository has STS asked in the registry's region, unless the caller chose one.
func (*Provider) GetAccessTokenOptionsForArtifactRepository(registryInput string, opts *auth.Options,
) ([]auth.Option, error) {
	if opts.STSRegion != "" {
		return nil, nil
	}
	return inRegion(readRegistryInput(registryInput).Region, opts), nil
}

// inRegion is nil, and costs nothing, where the caller chose a region.
func inRegion(region string, opts *auth.Options) []auth.Option {
	if opts.STSRegion != "" {
		return nil
	}
	return []auth.Option{auth.WithSTSRegion(region)}
}

// NewArtifactRegistryCredentials asks ECR for a password (ecr:GetAuthorizationToken; for the public registry
// ecr-public:GetAuthorizationToken and sts:GetServiceBearerToken).
func (p *Provider) NewArtifactRegistryCredentials(ctx context.Context, registryInput string, accessToken auth.Token,
	opts *auth.Options) (*auth.ArtifactRegistryCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	registry := readRegistryInput(registryInput)
	get := p.privateAuthorization
	if registry.Public {
		get = p.publicAuthorization
	}
	encoded, expiry, err := get(ctx, registry, token, opts)
	if err != nil {
		return nil, err
	}
	return registryCredentials(encoded, expiry, time.Now())
}

func (p *Provider) privateAuthorization(ctx context.Context, r awsname.Registry, token *Token, opts *auth.Options,
) (encoded string, expiry *time.Time, err error) {
	httpClient, err := self.HTTPClient(&p.transports, opts)
	if err != nil {
		return "", nil, err
	}
	o := ecr.Options{Region: r.Region, HTTPClient: httpClient, Credentials: token.provider(), Retryer: newRetryer()}
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

func (p *Provider) publicAuthorization(ctx context.Context, r awsname.Registry, token *Token, opts *auth.Options,
) (encoded string, expiry *time.Time, err error) {
	httpClient, err := self.HTTPClient(&p.transports, opts)
	if err != nil {
		return "", nil, err
	}
	o := ecrpublic.Options{Region: r.Region, HTTPClient: httpClient, Credentials: token.provider(), Retryer: newRetryer()}
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

// registryCredentials takes over what ECR answered, if it is whole: base64 of "AWS:<password>". Passwords hold colons.
func registryCredentials(encoded string, expiry *time.Time, now time.Time) (*auth.ArtifactRegistryCredentials, error) {
	bad := func(format string, args ...any) (*auth.ArtifactRegistryCredentials, error) {
		return nil, self.Unavailable(opRegistry, "check that the clocks agree, and that no proxy answers for ECR",
			"the answer of ECR cannot be used: "+format, args...)
	}
	if encoded == "" {
		return bad("it holds no authorization token")
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return bad("the authorization token is not base64")
	}
	user, password, found := strings.Cut(string(decoded), ":")
	switch {
	case !found || password == "":
		return bad("the authorization token is not <user>:<password>")
	case user != registryUser:
		return bad("the authorization token is not for the user %q", registryUser)
	case expiry == nil || expiry.IsZero():
		return bad("expiresAt is missing")
	case !expiry.After(now):
		return bad("expiresAt %s has passed", expiry.UTC().Format(time.RFC3339))
	case expiry.After(now.Add(maxRegistryLife)):
		return bad("expiresAt %s is further away than any authorization token lives", expiry.UTC().Format(time.RFC3339))
	}
	return auth.NewArtifactRegistryCredentials(user, password, *expiry), nil
}
