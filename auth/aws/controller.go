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
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/auth"
)

const (
	opControllerToken = "find own AWS credentials"

	noIdentity = "give this process an identity (IAM roles for service accounts or EKS Pod Identity), or name a ServiceAccount"
)

// NewControllerToken returns credentials from the SDK's default chain: the environment, shared configuration files, IAM
// roles for service accounts, EKS Pod Identity, the role of the node. A credential_process of the shared configuration runs
// with auth.WithAllowShellOut only.
func (p *Provider) NewControllerToken(ctx context.Context, opts *auth.Options) (auth.Token, error) {
	chain, err := p.chains.get(ctx, p, opts)
	if err != nil {
		return nil, controllerError(err)
	}
	// What the chain has kept may be about to expire; a call that gets here wants a new one.
	if cache, ok := chain.(*aws.CredentialsCache); ok {
		cache.Invalidate()
	}
	c, err := chain.Retrieve(ctx)
	if err != nil {
		return nil, p.chains.controllerError(err)
	}
	if !c.HasKeys() {
		return nil, controllerError(self.Unavailable(opControllerToken, "", "the chain gave no keys"))
	}
	t := ownToken(c)
	if t == nil {
		return nil, controllerError(self.Unavailable(opControllerToken, "", "the credentials hold characters that have no place in them"))
	}
	return t, nil
}

// IsOwnIdentityError reports whether err says that the controller's own credentials cannot be had. With WithAssumeRole that is the first
// link of the chain, and no other role helps.
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

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// controllerError is for errors of a chain, which callers at the same time share: one after the other looks at them, since the
// first one takes the request out.
func (c *chains) controllerError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return controllerError(err)
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
		e.Err = nil // its text is what the program printed
	}
	if e.Remedy == "" {
		e.Cause, e.Remedy = auth.CauseNoOwnIdentity, noIdentity
	}
	return e
}

// apiMessage leaves out what an answer may repeat of the request, since nobody here knows the secrets in it.
func apiMessage(e *auth.Error) string {
	switch {
	case e.Code == "", e.Code == "UnknownError":
		return "the answer is not one of AWS"
	case strings.Contains(e.Code, "Signature"):
		return "AWS refuses the signature"
	}
	return e.Message
}

// chainMessage describes what went wrong before AWS had answered. The SDK's own words may repeat a file, or what a program
// printed, so they are not used.
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
