package aws

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Reader asks STS and IAM, once each. The zero value uses the SDK's default
// chain: environment, shared files with AWS_PROFILE, IAM Identity Center, and
// so on. A Reader serves one examination.
type Reader struct {
	// Credentials are the person's credentials. Nil means the SDK's default
	// chain.
	Credentials aws.CredentialsProvider
	// HTTPClient asks STS and IAM. Nil: the SDK's own, which trusts
	// AWS_CA_BUNDLE. In both cases redirects are not followed and answers are
	// bounded. The default chain has clients of its own.
	HTTPClient *http.Client

	config  aws.Config
	arn     string // of the login
	secrets []string
}

const whoAmI, logIn = "aws sts get-caller-identity", "aws sso login"

// logIn returns the zero Finding for a login in the account: a login cannot
// read what another account trusts.
func (r *Reader) logIn(ctx context.Context, partition, account string) doctor.Finding {
	load := []func(*config.LoadOptions) error{
		config.WithDefaultRegion(regionOf(partition)), config.WithRetryer(newRetryer)}
	if r.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(r.Credentials))
	}
	var login aws.Credentials
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err == nil {
		login, err = cfg.Credentials.Retrieve(ctx)
	}
	if err != nil {
		return doctor.Unclear(doctor.Do("Log in with an account that may read what AWS trusts:", logIn, whoAmI),
			"This machine has no usable login for AWS.")
	}
	if p, _ := awsname.PartitionOf(cfg.Region); p.Name != partition {
		cfg.Region = regionOf(partition)
	}
	cfg.HTTPClient = r.guarded(cfg.HTTPClient)
	r.config, r.secrets = cfg, []string{login.SecretAccessKey, login.SessionToken}
	out, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	switch {
	case err != nil:
		return r.explain(err, "sts:GetCallerIdentity", whoAmI)
	case aws.ToString(out.Account) == "":
		return r.unusable(nil, 0, "")
	}
	r.arn = redact.Text(aws.ToString(out.Arn), r.secrets...)
	if *out.Account == account {
		return doctor.Finding{}
	}
	return doctor.Unclear(doctor.Do("Log in to account "+account+", for example with a profile:",
		"AWS_PROFILE=PROFILE "+whoAmI),
		"Your login is in account %s, not in account %s, so nothing was read.", redact.Text(*out.Account, r.secrets...),
		account)
}

// newRetryer tries little, because a person waits.
func newRetryer() aws.Retryer {
	const maxAttempts, maxBackoff = 2, 300 * time.Millisecond
	return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff })
}

// guarded keeps the certificates that the SDK trusts.
func (r *Reader) guarded(sdk aws.HTTPClient) *http.Client {
	client := &http.Client{}
	if b, ok := sdk.(*awshttp.BuildableClient); ok {
		t := b.GetTransport()
		transport.UseProxy(t, nil)
		client.Transport = t
	}
	if r.HTTPClient != nil {
		client = r.HTTPClient
	}
	return transport.Guard(client)
}

// regionOf returns a region in which IAM and STS of the partition answer.
func regionOf(partition string) string {
	return cmp.Or(map[string]string{"aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1", "aws-iso": "us-iso-east-1",
		"aws-iso-b": "us-isob-east-1",
		"aws-iso-e": "eu-isoe-west-1", "aws-iso-f": "us-isof-south-1", "aws-eusc": "eusc-de-east-1"}[partition], "us-east-1")
}

// explain returns the finding of a failed call. Of the answer it takes status,
// code and request ID: messages of services, and of what stands in their place,
// may repeat the login.
func (r *Reader) explain(err error, right, show string) (f doctor.Finding) {
	var response *awshttp.ResponseError
	var api smithy.APIError
	if !errors.As(err, &response) || response.HTTPStatusCode() == 0 {
		return r.unusable(err, 0, "")
	}
	status, code := response.HTTPStatusCode(), ""
	if errors.As(err, &api) && api.ErrorCode() != "UnknownError" {
		code = redact.Text(api.ErrorCode(), r.secrets...)
	}
	switch code {
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation":
		f = doctor.Unclear(doctor.Do("Grant "+right+", or ask someone who can run:", show), "AWS refuses %s to %s.", right,
			cmp.Or(r.arn, "your login"))
	case "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException",
		"SignatureDoesNotMatch":
		f = doctor.Unclear(doctor.Do("Log in again:", logIn), "AWS does not accept your login.")
	default:
		f = r.unusable(nil, status, code)
	}
	f.StatusCode, f.Code, f.RequestID = status, code, redact.Text(response.ServiceRequestID(), r.secrets...)
	return f
}

// unusable returns the finding of a call without the answer of the protocol.
func (r *Reader) unusable(err error, status int, code string) doctor.Finding {
	e := &auth.Error{Reason: auth.ErrUnavailable, Err: err, StatusCode: status, Code: code,
		Message: "the service answered with an error, or with something else than its protocol"}
	if err != nil {
		e.Message = transport.Message(err, r.secrets...)
	}
	if _, throttled := retry.DefaultThrottleErrorCodes[code]; throttled || status == http.StatusTooManyRequests {
		e.Reason = auth.ErrThrottled
	}
	return doctor.Refusal("AWS", e)
}
