package aws

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/awsname"
)

const (
	opAssumeRole = "assume role with web identity"

	maxAttempts = 3
	maxDelay    = 5 * time.Second
)

// NewTokenForServiceAccount exchanges the ServiceAccount's token for credentials of its own role, the first of a chain.
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount,
	opts *auth.Options) (auth.Token, error) {
	arn, err := p.GetIdentity(sa, opts)
	if err != nil {
		return nil, err
	}
	if err := p.checkPartition(arn, opts); err != nil {
		return nil, err
	}
	client, err := p.stsClient(opts, aws.AnonymousCredentials{})
	if err != nil {
		return nil, err
	}
	session := sessionName(sessionPrefix(opts), sa.Namespace, sa.Name)
	out, err := client.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &arn, RoleSessionName: &session, WebIdentityToken: &oidcToken, DurationSeconds: durationSeconds(opts)})
	if err != nil {
		return nil, exchangeError(err, arn, sa, oidcToken, opts)
	}
	return p.sessionToken(opAssumeRole, out.Credentials, out.AssumedRoleUser, session, opts)
}

// checkPartition tells that a role and the region are in different clouds of Amazon's, which STS does not explain. An
// endpoint that was given is not looked at: it need not be in the region.
func (p *Provider) checkPartition(arn string, opts *auth.Options) error {
	region := p.stsRegion(opts)
	partition, known := awsname.PartitionOf(region)
	if opts.STSEndpoint != "" || !known || strings.HasPrefix(arn, "arn:"+partition.Name+":") {
		return nil
	}
	return self.Misconfigured("use a region of the role's own partition with WithSTSRegion or AWS_REGION",
		"the role %q is not in the partition %q of the region %q", arn, partition.Name, region)
}

// stsClient is made of explicit options only: nothing of the environment signs or directs the request.
func (p *Provider) stsClient(opts *auth.Options, credentials aws.CredentialsProvider) (*sts.Client, error) {
	httpClient, err := self.HTTPClient(&p.transports, opts)
	if err != nil {
		return nil, err
	}
	o := sts.Options{
		Region:      p.stsRegion(opts),
		HTTPClient:  httpClient,
		Credentials: credentials,
		Retryer:     newRetryer(),
	}
	if opts.STSEndpoint != "" {
		o.BaseEndpoint = &opts.STSEndpoint
		o.Region = firstNonEmpty(awsname.STSRegion(hostOf(opts.STSEndpoint)), o.Region) // in which it wants signatures
	} else {
		// An endpoint that was given is used as it is.
		o.EndpointOptions.UseFIPSEndpoint = fips(p.UseFIPSEndpoint)
		o.EndpointOptions.UseDualStackEndpoint = dualStack(p.UseDualStackEndpoint)
	}
	return sts.New(o), nil
}

func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = maxAttempts
		o.MaxBackoff = maxDelay
		o.Retryables = append(o.Retryables, retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			return aws.BoolTernary(takesAMoment(err))
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

// maxSession is the longest session of AWS, maxOtherSession that of MinIO, plus one hour of clock skew.
const maxSession, maxOtherSession = 13 * time.Hour, 365*24*time.Hour + time.Hour

// maxAccessKeyID is from the model of IAM, in characters.
const maxAccessKeyID = 128

func assumedRole(user *types.AssumedRoleUser) string {
	if user == nil {
		return ""
	}
	return aws.ToString(user.Arn)
}

// sessionToken takes over what STS answered, if it is whole.
func (p *Provider) sessionToken(operation string, c *types.Credentials, user *types.AssumedRoleUser, session string,
	opts *auth.Options) (auth.Token, error) {
	now, longest := time.Now(), maxSession
	if p.isOtherService(opts) {
		longest = maxOtherSession
	}
	incomplete := func(what string) error {
		return &auth.Error{Provider: ProviderName, Operation: operation, Reason: auth.ErrUnavailable,
			Message: "the answer of STS cannot be used: " + what,
			Remedy:  "check that the STS endpoint is one, and that the clocks agree"}
	}
	switch {
	case c == nil:
		return nil, incomplete("it holds no credentials")
	case aws.ToString(c.AccessKeyId) == "":
		return nil, incomplete("AccessKeyId is missing")
	case !allOf(*c.AccessKeyId, "_") || len(*c.AccessKeyId) > maxAccessKeyID:
		return nil, incomplete("AccessKeyId is malformed") // it shows in logs
	case aws.ToString(c.SecretAccessKey) == "":
		return nil, incomplete("SecretAccessKey is missing")
	case aws.ToString(c.SessionToken) == "":
		return nil, incomplete("SessionToken is missing")
	case c.Expiration == nil || c.Expiration.IsZero():
		return nil, incomplete("Expiration is missing")
	case !c.Expiration.After(now):
		return nil, incomplete(fmt.Sprintf("Expiration %s has passed", c.Expiration.UTC().Format(time.RFC3339)))
	case c.Expiration.After(now.Add(longest)):
		return nil, incomplete(fmt.Sprintf("Expiration %s is further away than any session lives", c.Expiration.UTC().Format(time.RFC3339)))
	}
	parts := [partCount]string{
		partKeyID: *c.AccessKeyId, partSecret: *c.SecretAccessKey, partSessionToken: *c.SessionToken, partSession: session,
	}
	parts[partPartition], parts[partAccount], parts[partRole] = cutSession(assumedRole(user), session)
	t := newToken(*c.Expiration, parts)
	if t == nil {
		return nil, incomplete("the credentials hold characters that have no place in them")
	}
	return t, nil
}
