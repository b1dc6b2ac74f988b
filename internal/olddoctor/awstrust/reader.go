package awstrust

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

var (
	_ doctor.TrustReader  = (*Reader)(nil)
	_ doctor.AccessReader = (*Reader)(nil)
)

// Reader asks IAM and EKS. The zero value uses the SDK's default chain: environment, shared files with AWS_PROFILE, IAM
// Identity Center, and so on. It is safe for concurrent use.
type Reader struct {
	// Credentials are the caller's. Nil: the SDK's default chain.
	Credentials aws.CredentialsProvider
	// HTTPClient asks STS, IAM and EKS. Nil: the SDK's own, which trusts AWS_CA_BUNDLE. Redirects are not followed and answers
	// are bounded in any case. The default chain has clients of its own.
	HTTPClient *http.Client

	mu sync.Mutex
	// configs are those that were loaded, by region.
	configs map[string]aws.Config
}

// caller is whose login it is, and what of it is secret.
type caller struct {
	arn, account string
	secrets      []string
}

// These are small: a person waits.
const (
	maxAttempts = 2
	maxBackoff  = 300 * time.Millisecond
)

// in returns the configuration for a region. It is loaded without the lock, since that reads files.
func (r *Reader) in(ctx context.Context, region string) (aws.Config, error) {
	r.mu.Lock()
	cfg, ok := r.configs[region]
	r.mu.Unlock()
	if ok {
		return cfg, nil
	}
	load := []func(*config.LoadOptions) error{config.WithRegion(region), config.WithRetryer(newRetryer)}
	if r.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(r.Credentials))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return cfg, noLogin(err)
	}
	cfg.HTTPClient = r.guarded(cfg.HTTPClient)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.configs == nil {
		r.configs = map[string]aws.Config{}
	}
	r.configs[region] = cfg
	return cfg, nil
}

// CloseIdleConnections closes those that Reader has opened itself.
func (r *Reader) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cfg := range r.configs {
		if c, ok := cfg.HTTPClient.(*http.Client); ok && r.HTTPClient == nil {
			c.CloseIdleConnections()
		}
	}
}

func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff })
}

// guarded takes over what the SDK trusts, but neither follows redirects nor reads without bounds.
func (r *Reader) guarded(sdk aws.HTTPClient) *http.Client {
	if r.HTTPClient != nil {
		return transport.Guard(r.HTTPClient)
	}
	if b, ok := sdk.(*awshttp.BuildableClient); ok {
		t := b.GetTransport()
		transport.UseProxy(t, nil)
		return transport.Guard(&http.Client{Transport: t})
	}
	return transport.Guard(&http.Client{})
}

// whoAmI asks STS, which needs no right, and compares the account: what another account trusts cannot be read with this
// login.
func (r *Reader) whoAmI(ctx context.Context, cfg aws.Config, account, what string) (caller, error) {
	login, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return caller{}, noLogin(err)
	}
	secrets := []string{login.SecretAccessKey, login.SessionToken}
	out, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return caller{}, explain(err, request{service: "AWS STS", action: "sts:GetCallerIdentity",
			show: "aws sts get-caller-identity", secrets: secrets})
	}
	me := caller{arn: redact.Text(aws.ToString(out.Arn), secrets...), account: aws.ToString(out.Account), secrets: secrets}
	if me.account != account {
		return me, &auth.Error{Provider: "aws", Reason: auth.ErrDenied,
			Message: fmt.Sprintf("your login is %.300q in account %.12q, but %s is in account %s: nothing was read", me.arn,
				me.account, what, account),
			Remedy: fmt.Sprintf("log in to account %s and run this again: a profile of it in AWS_PROFILE, for example", account)}
	}
	return me, nil
}

// regionOf is the caller's region if it lies in the partition, or else one where IAM and STS of the partition answer.
func regionOf(ctx context.Context, partition string) string {
	if cfg, err := config.LoadDefaultConfig(ctx); err == nil {
		if p, ok := awsname.PartitionOf(cfg.Region); ok && p.Name == partition {
			return cfg.Region
		}
	}
	switch strings.TrimPrefix(partition, "aws") {
	case "-cn":
		return "cn-north-1"
	case "-us-gov":
		return "us-gov-west-1"
	case "-iso":
		return "us-iso-east-1"
	case "-iso-b":
		return "us-isob-east-1"
	case "-iso-e":
		return "eu-isoe-west-1"
	case "-iso-f":
		return "us-isof-south-1"
	case "-eusc":
		return "eusc-de-east-1"
	}
	return "us-east-1"
}
