package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/internal/object"
)

const self = provider.Name("s3")

// Options holds the optional settings of [Open]. The environment means the
// sources of the AWS SDKs: variables, shared configuration files, roles of
// ServiceAccounts, EKS Pod Identity, roles of machines.
type Options struct {
	// Prefix precedes the names of the files. It is the path of the issuer's
	// URL.
	Prefix string
	// Region is the bucket's region. Empty means the region of the environment.
	Region string
	// Endpoint is the https URL of a compatible service. Its paths begin with
	// the bucket. Plain http is allowed on the loopback interface. Empty means
	// the endpoint of the environment, else S3. The first Write uses an object
	// .workloadid/probe of its own to check that the service honours
	// conditions.
	Endpoint string
	// Owner is the account that owns the bucket. S3 refuses requests for a
	// bucket of another account. Set it: names of buckets are global, so
	// another account can create a bucket of this name after its deletion.
	Owner string
	// Credentials sign the requests. Nil means the credentials of the
	// environment.
	Credentials aws.CredentialsProvider
	// HTTPClient sends the requests to the bucket. Nil means the SDK's client.
	HTTPClient *http.Client
}

// Store is an [issuer.Store]. A version is an ETag.
type Store struct {
	client         *s3.Client
	bucket, prefix string
	owner          *string
	proven         atomic.Bool // the service is S3, or honours conditions
}

var _ issuer.Store = (*Store)(nil)

// bucketName matches the names that S3 allows for general purpose buckets.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Open returns the [Store] of a bucket. It reads the environment, and sends no
// request.
func Open(ctx context.Context, bucket string, opts Options) (*Store, error) {
	prefix, err := object.Prefix(opts.Prefix)
	switch {
	case !bucketName.MatchString(bucket):
		return nil, fmt.Errorf("s3: %.200q is not the name of a bucket", bucket)
	case opts.Owner != "" && !awsname.ValidAccount(opts.Owner):
		return nil, fmt.Errorf("s3: the owner %.200q is not an account ID of 12 digits", opts.Owner)
	case err != nil:
		return nil, fmt.Errorf("s3: %w", err)
	}
	load := []func(*config.LoadOptions) error{config.WithCredentialsProvider(opts.Credentials)}
	if opts.Region != "" {
		load = append(load, config.WithRegion(opts.Region))
	}
	environment, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, self.Misconfigured("correct the shared configuration (AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE)",
			"%s", transport.Message(err))
	}
	s := &Store{client: s3.NewFromConfig(environment, opts.configure), bucket: bucket, prefix: prefix}
	if opts.Owner != "" {
		s.owner = &opts.Owner
	}
	if s.client.Options().Region == "" {
		return nil, fmt.Errorf("s3: the region of the bucket %q is unknown: name it, or set AWS_REGION", bucket)
	}
	if endpoint := aws.ToString(s.client.Options().BaseEndpoint); endpoint != "" {
		if err := checkEndpoint(endpoint); err != nil {
			return nil, fmt.Errorf("s3: %w", err)
		}
	}
	return s, nil
}

// checkEndpoint accepts https, and http on the loopback interface.
func checkEndpoint(endpoint string) error {
	https := endpoint
	if u, err := url.Parse(endpoint); err == nil && u.Scheme == "http" && address.IsLoopback(u.Hostname()) {
		https = "https" + strings.TrimPrefix(endpoint, "http")
	}
	_, err := address.Parse("endpoint", https, 0)
	return err
}

// configure limits the requests to features of compatible services: no
// checksums of the SDK, and paths that begin with the bucket.
func (o Options) configure(s *s3.Options) {
	if o.Endpoint != "" {
		s.BaseEndpoint = &o.Endpoint
	}
	s.UsePathStyle = s.BaseEndpoint != nil
	s.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	s.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	client := o.HTTPClient
	if client == nil {
		client = &http.Client{}
		if sdk, ok := s.HTTPClient.(*awshttp.BuildableClient); ok {
			client.Transport = sdk.GetTransport() // has the CA of AWS_CA_BUNDLE
		}
	}
	guarded := transport.Guard(client)
	// The SDK retries other failures. A redirect counts as an answer, and names
	// the region of the bucket.
	guarded.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.HTTPClient = guarded
}

// Read implements [issuer.Store].
func (s *Store) Read(ctx context.Context, path string) (content []byte, version string, err error) {
	key := s.prefix + path
	err = s.send(ctx, "read", key, func() error {
		out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key, ExpectedBucketOwner: s.owner})
		if err != nil {
			return err
		}
		defer out.Body.Close() //nolint:errcheck // nothing was written
		version = aws.ToString(out.ETag)
		content, err = io.ReadAll(out.Body)
		return err
	})
	switch {
	case refusal(err) == "NoSuchKey":
		return nil, "", issuer.ErrNotExist
	case err == nil && version == "":
		err = self.Unusable("read "+key, "S3", "it has no ETag")
	}
	return content, version, err
}

// Write implements [issuer.Store].
func (s *Store) Write(ctx context.Context, path string, content []byte, version string) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.write(ctx, path, content, version)
}

// prove writes under conditions that do not hold. If a service ignored them,
// publishers could undo the removal of a key.
func (s *Store) prove(ctx context.Context) error {
	const probe = ".workloadid/probe"
	if s.client.Options().BaseEndpoint == nil || s.proven.Load() {
		return nil
	}
	for i, version := range []string{"", "", `"another"`} { // the first may create the object
		err := s.write(ctx, probe, []byte("{}"), version)
		if err == nil && i > 0 {
			return self.Misconfigured(conditionalWrites, "the service of the bucket %q ignores conditions", s.bucket)
		} else if err != nil && !errors.Is(err, issuer.ErrChanged) {
			return err
		}
	}
	s.proven.Store(true)
	return nil
}

func (s *Store) write(ctx context.Context, path string, content []byte, version string) error {
	key := s.prefix + path
	in := &s3.PutObjectInput{Bucket: &s.bucket, Key: &key, ExpectedBucketOwner: s.owner, Body: bytes.NewReader(content),
		ContentType: aws.String(issuer.ContentType(path)), CacheControl: aws.String(object.CacheControl), IfMatch: &version}
	if version == "" {
		in.IfMatch, in.IfNoneMatch = nil, aws.String("*")
	}
	err := s.send(ctx, "write", key, func() error {
		_, err := s.client.PutObject(ctx, in)
		return err
	})
	switch refusal(err) {
	case preconditionFailed, "ConditionalRequestConflict", "NoSuchKey": // deleted meanwhile
		return issuer.ErrChanged
	}
	return err
}

// send explains the errors of a request, by status and code, without secrets
// and bodies. It distinguishes failures of S3 from failures of other services,
// such as STS. The SDK caches credentials.
func (s *Store) send(ctx context.Context, verb, key string, request func() error) error {
	operation := fmt.Sprintf("%s %q", verb, "s3://"+s.bucket+"/"+key)
	c, err := s.client.Options().Credentials.Retrieve(ctx)
	var program *processcreds.ProviderError
	if err != nil {
		e := failed(operation, err)
		e.Remedy = "give this process AWS credentials, such as AWS_PROFILE or a role for its ServiceAccount"
		if errors.As(err, &program) {
			// the text may hold the program's output
			e.Err, e.Message = nil, "the program of credential_process failed, or printed no credentials"
		}
		return e
	}
	if err = request(); err == nil {
		return nil
	}
	secrets := []string{c.SecretAccessKey, c.SessionToken}
	e := failed(operation, err, secrets...)
	var answer *awshttp.ResponseError
	if e.Code = provider.Redact(refusal(err), secrets...); e.Code == "" || !errors.As(err, &answer) {
		return e
	}
	e.StatusCode = answer.HTTPStatusCode()
	refusals.Explain(e)
	region := provider.Redact(answer.Response.Header.Get("x-amz-bucket-region"), secrets...)
	switch {
	case region != "" && region != s.client.Options().Region:
		e.Reason, e.Remedy = provider.ErrMisconfigured, "set the region of the bucket, "+region
	case e.Code == "AccessDenied" && s.owner != nil:
		e.Remedy = "check that account " + *s.owner + " owns the bucket, and " + e.Remedy
	case e.StatusCode/100 == 3:
		e.Message = "it answers with a redirect, which is not followed"
	}
	return e
}

// failed drops the request ID, which changes with each try.
func failed(operation string, err error, secrets ...string) *provider.Error {
	e := self.Unanswered(operation, err, secrets...)
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Message = provider.Redact(api.ErrorMessage(), secrets...)
	}
	return e
}

const (
	preconditionFailed = "PreconditionFailed"
	conditionalWrites  = "use a service with conditional writes (If-Match and If-None-Match)"
)

var refusals = object.Refusals{
	"NoSuchBucket":          {provider.ErrMisconfigured, "create the bucket, or correct its name"},
	"NotImplemented":        {provider.ErrMisconfigured, conditionalWrites},
	"SlowDown":              {provider.ErrThrottled, ""},
	"AccessDenied":          {provider.ErrDenied, "allow s3:GetObject, s3:PutObject and s3:ListBucket"},
	"InvalidAccessKeyId":    {provider.ErrDenied, "check the credentials"},
	"SignatureDoesNotMatch": {provider.ErrDenied, "check the credentials"},
}

// refusal returns the error code of an answer, or "" if it has none.
func refusal(err error) string {
	var api smithy.APIError
	var answer *awshttp.ResponseError
	switch {
	case errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusPreconditionFailed:
		return preconditionFailed // compatible services may use another code
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return ""
}
