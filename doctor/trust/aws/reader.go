package aws

import (
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

var (
	_ doctor.Trust  = (*Reader)(nil)
	_ doctor.Access = (*Reader)(nil)
)

// Reader asks STS, IAM and EKS, in up to four calls for the trust and three for a cluster. The zero value uses the SDK's default
// chain: environment, shared files with AWS_PROFILE, IAM Identity Center, and so on. A Reader serves one examination.
type Reader struct {
	// Credentials are those of the person. Nil: the SDK's default chain.
	Credentials aws.CredentialsProvider
	// HTTPClient asks STS, IAM and EKS. Nil: the SDK's own, which trusts AWS_CA_BUNDLE. In both cases redirects are not followed and
	// answers are bounded. The default chain has clients of its own.
	HTTPClient *http.Client

	config       aws.Config
	arn, account string
	secrets      []string
	failed       bool
}

const (
	cloud   = "AWS"
	logIn   = "aws sso login"
	whoAmI  = "aws sts get-caller-identity"
	iamName = "AWS IAM"
	eksName = "Amazon EKS"
)

// start logs in once, and compares the account: a login cannot read what another account trusts.
func (r *Reader) start(ctx context.Context, partition, account string) *doctor.Finding {
	if r.failed {
		f := reading.Again(cloud)
		return &f
	}
	if r.account == "" {
		if f := r.logIn(ctx, partition); f != nil {
			r.failed = true
			return f
		}
	}
	if r.account == account {
		return nil
	}
	r.failed = true
	f := doctor.Unclear(doctor.Do("Log in to account "+account+", for example with a profile in AWS_PROFILE:", whoAmI),
		"Your login is in account %s, not in account %s, so nothing was read.", r.account, account).Detail("read as", r.arn)
	return &f
}

func (r *Reader) logIn(ctx context.Context, partition string) *doctor.Finding {
	load := []func(*config.LoadOptions) error{config.WithDefaultRegion(regionOf(partition)), config.WithRetryer(newRetryer)}
	if r.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(r.Credentials))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	var login aws.Credentials
	if err == nil {
		login, err = cfg.Credentials.Retrieve(ctx)
	}
	if err != nil {
		f := reading.NoLogin(cloud, logIn, whoAmI)
		return &f
	}
	r.secrets = []string{login.SecretAccessKey, login.SessionToken}
	cfg.HTTPClient = r.guarded(cfg.HTTPClient)
	if p, _ := awsname.PartitionOf(cfg.Region); p.Name != partition {
		cfg.Region = regionOf(partition)
	}
	out, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	q := reading.Question{Service: "AWS STS", Right: "sts:GetCallerIdentity", Resource: "*", Show: whoAmI, Login: "your login", Secrets: r.secrets}
	if err == nil && aws.ToString(out.Account) == "" {
		f := q.Strange()
		return &f
	}
	if err != nil {
		f := explain(err, &q)
		return &f
	}
	r.config, r.account, r.arn = cfg, redact.Text(aws.ToString(out.Account), r.secrets...), redact.Text(aws.ToString(out.Arn), r.secrets...)
	return nil
}

// newRetryer tries little, because a person waits.
func newRetryer() aws.Retryer {
	const maxAttempts, maxBackoff = 2, 300 * time.Millisecond
	return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff })
}

// guarded keeps the certificates that the SDK trusts.
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

// regionOf returns a region in which IAM and STS of the partition answer.
func regionOf(partition string) string {
	for _, region := range []string{"cn-north-1", "us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1", "us-isof-south-1", "eusc-de-east-1"} {
		if p, ok := awsname.PartitionOf(region); ok && p.Name == partition {
			return region
		}
	}
	return "us-east-1"
}
