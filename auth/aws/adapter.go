package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/workloadid/workloadid/auth"
)

// CredentialsProvider returns credentials to clients of the AWS SDK. It is safe
// for concurrent use.
type CredentialsProvider struct {
	source *auth.AccessTokenSource
}

var _ aws.CredentialsProvider = (*CredentialsProvider)(nil)

// NewCredentialsProvider returns an aws.CredentialsProvider with a Provider of
// its own, for the options of [auth.GetAccessToken]. To make many, share a
// Provider and use its method.
//
// Clients of the SDK ask for credentials before every request. Without
// [auth.WithCache] the result keeps them itself, so each of several makes
// exchanges of its own. Pass the result to a client's own options, as in
// s3.Options.Credentials. config.LoadDefaultConfig would keep the credentials
// until they expire, also after the ServiceAccount was deleted or re-annotated.
func NewCredentialsProvider(opts ...auth.Option) *CredentialsProvider {
	return (&Provider{}).NewCredentialsProvider(opts...)
}

// NewCredentialsProvider returns an aws.CredentialsProvider that uses p. It
// makes no request: in a reconciler, call [Provider.GetCredentialsProvider].
func (p *Provider) NewCredentialsProvider(opts ...auth.Option) *CredentialsProvider {
	return &CredentialsProvider{source: auth.NewAccessTokenSource(p, opts...)}
}

// GetCredentialsProvider obtains the first credentials as
// [auth.GetAccessToken] does, with the patience of a reconciler and its errors,
// and returns an aws.CredentialsProvider that uses p.
func (p *Provider) GetCredentialsProvider(ctx context.Context, opts ...auth.Option) (*CredentialsProvider, error) {
	source, err := auth.GetAccessTokenSource(ctx, p, opts...)
	if err != nil {
		return nil, err
	}
	return &CredentialsProvider{source: source}, nil
}

// Invalidate makes the next call return new credentials, after a service has
// refused the last ones. Invalidate an aws.CredentialsCache around it too.
func (c *CredentialsProvider) Invalidate() { c.source.Invalidate() }

// Retrieve implements aws.CredentialsProvider. It honours the context of each
// call, and fails with the errors of [auth.GetAccessToken].
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
