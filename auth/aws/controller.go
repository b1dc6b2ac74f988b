package aws

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	opControllerToken = "find own AWS credentials"

	noIdentity = "give this process an identity (IAM roles for service accounts or EKS Pod Identity), or name a ServiceAccount"
)

// NewControllerToken returns credentials from the SDK's default chain: the
// environment, shared configuration files, IAM roles for service accounts, EKS
// Pod Identity, the role of the node. A credential_process of the shared
// configuration runs with [auth.WithAllowShellOut] only.
func (p *Provider) NewControllerToken(ctx context.Context, opts *provider.Options) (auth.Token, error) {
	chain, err := p.loadChain(ctx, opts) // anew, because a chain keeps credentials that may expire soon
	if err != nil {
		return nil, controllerError(err)
	}
	c, err := chain.Retrieve(ctx)
	if err != nil {
		return nil, controllerError(err)
	}
	if !c.HasKeys() {
		return nil, controllerError(self.Unavailable(opControllerToken, "", "the chain gave no keys"))
	}
	t := ownToken(c)
	if t == nil {
		return nil, controllerError(self.Unavailable(opControllerToken, "", "the credentials hold invalid characters"))
	}
	return t, nil
}

// IsOwnIdentityError reports whether the controller's own credentials are
// missing. With [WithAssumeRole] they are the start of the chain, so no other
// role helps.
func (*Provider) IsOwnIdentityError(err error) bool {
	var known *auth.Error
	return errors.As(err, &known) && known.Operation == opControllerToken
}

func ownToken(c aws.Credentials) *Token {
	var expires time.Time
	if c.CanExpire {
		expires = c.Expires
	}
	return newToken(expires, [partCount]string{
		partKeyID: c.AccessKeyID, partSecret: c.SecretAccessKey, partSessionToken: c.SessionToken, partAccount: c.AccountID,
	})
}

// controllerError explains why the chain gave no credentials.
func controllerError(err error) error {
	var known *auth.Error
	if errors.As(err, &known) {
		return err
	}
	e := classify(err, opControllerToken)
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Message = apiMessage(e)
	} else if e.StatusCode/100 != 3 {
		e.Message = chainMessage(err)
	}
	var process *processcreds.ProviderError
	if errors.As(err, &process) {
		e.Err = nil // its text holds the output of the program
	}
	if e.Remedy == "" {
		e.Cause, e.Remedy, e.Option = provider.CauseNoOwnIdentity, noIdentity, "auth.WithServiceAccount"
	}
	return e
}

// apiMessage leaves out parts of the answer that may repeat the request, whose
// secrets are unknown here.
func apiMessage(e *auth.Error) string {
	switch {
	case e.Code == "", e.Code == "UnknownError":
		return "the answer is not one of AWS"
	case strings.Contains(e.Code, "Signature"):
		return "AWS refuses the signature"
	}
	return e.Message
}

// chainMessage describes an error before the answer of AWS. It repeats no text
// of the SDK, which may quote a file or the output of a program.
func chainMessage(err error) string {
	var (
		process   *processcreds.ProviderError
		file      *fs.PathError
		profile   config.SharedConfigProfileNotExistError
		request   *url.Error
		tooLarge  *http.MaxBytesError
		answer    *smithy.DeserializationError
		operation *smithy.OperationError
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &request), errors.As(err, &tooLarge), errors.As(err, &answer):
		return transportMessage(err)
	case errors.As(err, &process):
		return "the program of credential_process failed, or printed no credentials"
	case errors.As(err, &file):
		return fmt.Sprintf("%.200q cannot be read: %v", file.Path, file.Err)
	case errors.As(err, &profile):
		return fmt.Sprintf("there is no profile %.100q in the shared configuration", profile.Profile)
	case errors.As(err, &operation):
		return fmt.Sprintf("%s of %s failed", operation.Operation(), operation.Service())
	}
	return "the environment or the shared configuration (AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE) cannot be used"
}

func (p *Provider) loadChain(ctx context.Context, opts *provider.Options) (aws.CredentialsProvider, error) {
	client, process := chainClient(opts), false
	load := []func(*config.LoadOptions) error{
		config.WithRegion(p.stsRegion(opts)),
		config.WithHTTPClient(client),
		config.WithAPIOptions([]func(*middleware.Stack) error{sending(opts.HTTPClient)}),
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = client }),
		config.WithProcessCredentialOptions(func(*processcreds.Options) { process = true }),
		config.WithRetryer(p.newRetryer),
		config.WithUseFIPSEndpoint(fips(p.UseFIPSEndpoint)),
		config.WithUseDualStackEndpoint(dualStack(p.UseDualStackEndpoint)),
	}
	if opts.STSEndpoint != "" {
		load = append(load, config.WithBaseEndpoint(opts.STSEndpoint))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	switch {
	case err != nil:
		return nil, err
	case process && !opts.AllowShellOut:
		e := self.Misconfigured(noIdentity+", or allow programs where a person runs this one",
			"the shared configuration names a credential_process, and no program may be run").About("auth.WithAllowShellOut")
		e.Operation = opControllerToken
		return nil, e
	}
	return cfg.Credentials, nil
}

// chainClient has the SDK's own type: the SDK makes that one trust
// AWS_CA_BUNDLE and fails with any other.
func chainClient(opts *provider.Options) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().
		WithTimeout(time.Duration(maxAttempts) * transport.RequestTimeout).
		WithTransportOptions(func(t *http.Transport) { transport.UseProxy(t, opts.ProxyURL) })
}

// sending is the last step of each request of the SDK. It sends the request
// with the client of the options, if any, and bounds the answer, which holds
// only credentials.
func sending(given *http.Client) func(*middleware.Stack) error {
	var handler middleware.Handler
	if given != nil {
		handler = smithyhttp.NewClientHandlerWithOptions(transport.Guard(given))
	}
	send := func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (out middleware.DeserializeOutput, metadata middleware.Metadata, err error) {
		if handler != nil {
			out.RawResponse, metadata, err = handler.Handle(ctx, in.Request)
		} else {
			out, metadata, err = next.HandleDeserialize(ctx, in)
		}
		if answer, ok := out.RawResponse.(*smithyhttp.Response); ok && answer.Response != nil {
			answer.Body = http.MaxBytesReader(nil, answer.Body, transport.MaxToken)
		}
		return out, metadata, err
	}
	return func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("workloadidSend", send), middleware.After)
	}
}
