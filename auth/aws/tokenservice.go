package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/auth"
)

// TokenServiceURL returns the address that an exchange with these options asks. It asks nobody itself. The error is that of
// ValidateOptions.
func (p *Provider) TokenServiceURL(opts *auth.Options) (string, error) {
	if err := p.ValidateOptions(opts); err != nil {
		return "", err
	}
	if opts.STSEndpoint != "" {
		return opts.STSEndpoint, nil
	}
	endpoint, err := sts.NewDefaultEndpointResolverV2().ResolveEndpoint(context.Background(), sts.EndpointParameters{
		Region: aws.String(p.stsRegion(opts)), UseFIPS: &p.UseFIPSEndpoint, UseDualStack: &p.UseDualStackEndpoint})
	if err != nil {
		return "", &auth.Error{Provider: ProviderName, Reason: auth.ErrMisconfigured, Message: err.Error(), Err: err}
	}
	return endpoint.URI.String(), nil
}
