package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/workloadid/workloadid/auth"
)

// CredentialsProvider hands the credentials to clients of the AWS SDK. It is safe for concurrent use.
type CredentialsProvider struct {
	source *auth.AccessTokenSource
}

var _ aws.CredentialsProvider = (*CredentialsProvider)(nil)

// NewCredentialsProvider returns an aws.CredentialsProvider for the options of auth.GetAccessToken. It has a Provider of
// its own; use the method of a Provider that you share if you make many.
//
// Give it a cache with auth.WithCache: clients of the SDK ask for credentials before every request. Hand it to a client's own
// options, as in s3.Options.Credentials: config.LoadDefaultConfig would keep what it returns until it expires, and a
// ServiceAccount that was deleted or re-annotated meanwhile would go on acting.
func NewCredentialsProvider(opts ...auth.Option) *CredentialsProvider {
	return (&Provider{}).NewCredentialsProvider(opts...)
}

// NewCredentialsProvider returns an aws.CredentialsProvider that uses p.
func (p *Provider) NewCredentialsProvider(opts ...auth.Option) *CredentialsProvider {
	return &CredentialsProvider{source: auth.NewAccessTokenSource(p, opts...)}
}

// Invalidate has the credentials replaced, because a service has refused them: see auth.WithInvalidBefore. An
// aws.CredentialsCache above has to be told as well.
func (c *CredentialsProvider) Invalidate() { c.source.Invalidate() }

// Retrieve implements aws.CredentialsProvider. It honours the context of each call, and its errors are those of
// auth.GetAccessToken.
func (c *CredentialsProvider) Retrieve(ctx context.Context) (aws.Credentials, error) {
	token, err := c.source.Token(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	own, err := FromToken(token)
	if err != nil {
		return aws.Credentials{}, err
	}
	return own.Credentials(), nil
}
