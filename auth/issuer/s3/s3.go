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
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/auth/issuer/internal/object"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/providers"
	"github.com/workloadid/workloadid/internal/transport"
)

const self = providers.Name("s3")

// Options holds what Open can do without. The environment is that of AWS SDKs: variables, shared configuration files, roles of
// ServiceAccounts, EKS Pod Identity, roles of machines.
type Options struct {
	// Prefix stands before the names of the files. It is the path of the issuer's URL.
	Prefix string
	// Region is the bucket's region. Empty: that of the environment.
	Region string
	// Endpoint is the https URL of a compatible service. Its paths begin with the bucket. Plain http is allowed on the
	// loopback interface. Empty: that of the environment, else S3. The first Write proves by an object of its own,
	// .workloadid/probe, that the service heeds conditions.
	Endpoint string
	// Owner is the account that owns the bucket. S3 refuses requests for a bucket of another account. Set it: names of buckets are
	// global, so another account can create a bucket of this name after it was deleted.
	Owner string
	// Credentials sign the requests. Nil: those of the environment.
	Credentials aws.CredentialsProvider
	// HTTPClient sends the requests to the bucket. Nil: that of the SDK.
	HTTPClient *http.Client
}

// Store is an issuer.Store. A version is an ETag.
type Store struct {
	client         *s3.Client
	bucket, prefix string
	owner          *string
	proven         atomic.Bool // the service is S3, or heeds conditions
}

var _ issuer.Store = (*Store)(nil)

// bucketName matches the names that S3 allows for general purpose buckets.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Open returns the Store of a bucket. It reads the environment, and sends no request.
func Open(ctx context.Context, bucket string, opts Options) (*Store, error) {
	prefix, err := opts.check(bucket)
	if err != nil {
		return nil, err
	}
	load := []func(*config.LoadOptions) error{config.WithCredentialsProvider(opts.Credentials)}
	if opts.Region != "" {
		load = append(load, config.WithRegion(opts.Region))
	}
	environment, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, failed(self.Misconfigured("correct the shared configuration (AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE)", ""), err, nil)
	}
	client := s3.NewFromConfig(environment, opts.configure)
	if endpoint := aws.ToString(client.Options().BaseEndpoint); endpoint != "" {
		if err := checkEndpoint(endpoint); err != nil {
			return nil, err
		}
	}
	if client.Options().Region == "" {
		return nil, fmt.Errorf("s3: the region of the bucket %q is unknown: name it, or set AWS_REGION", bucket)
	}
	s := &Store{client: client, bucket: bucket, prefix: prefix}
	if opts.Owner != "" {
		s.owner = &opts.Owner
	}
	return s, nil
}

func (o Options) check(bucket string) (prefix string, err error) {
	switch {
	case !bucketName.MatchString(bucket):
		return "", fmt.Errorf("s3: %.200q is not the name of a bucket", bucket)
	case o.Owner != "" && !awsname.ValidAccount(o.Owner):
		return "", fmt.Errorf("s3: the owner %.200q is not an account ID of 12 digits", o.Owner)
	}
	if prefix, err = object.Prefix(o.Prefix); err != nil {
		return "", fmt.Errorf("s3: %w", err)
	}
	return prefix, nil
}

// checkEndpoint accepts https, and http on the loopback interface.
func checkEndpoint(endpoint string) error {
	https := endpoint
	if u, err := url.Parse(endpoint); err == nil && u.Scheme == "http" && address.IsLoopback(u.Hostname()) {
		https = "https" + strings.TrimPrefix(endpoint, "http")
	}
	if _, err := address.Parse("endpoint", https, 0); err != nil {
		return fmt.Errorf("s3: %w", err)
	}
	return nil
}

// configure keeps the requests to what compatible services know: no checksums of the SDK, and paths that begin with the bucket.
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
	// The SDK tries other failures again. A redirect is an answer, and names the region of the bucket.
	guarded.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.HTTPClient = guarded
}

// Read implements issuer.Store.
func (s *Store) Read(ctx context.Context, path string) (content []byte, version string, err error) {
	key, operation := s.locate("read", path)
	secrets, err := s.secrets(ctx, operation)
	if err != nil {
		return nil, "", err
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key, ExpectedBucketOwner: s.owner})
	switch {
	case refusal(err) == "NoSuchKey":
		return nil, "", fmt.Errorf("%s: %w", operation, issuer.ErrNotExist)
	case err != nil:
		return nil, "", s.failed(operation, err, secrets)
	}
	defer out.Body.Close() //nolint:errcheck // nothing was written
	if content, err = io.ReadAll(out.Body); err != nil {
		return nil, "", s.failed(operation, err, secrets)
	}
	if version = aws.ToString(out.ETag); version == "" {
		return nil, "", self.Unusable(operation, "S3", "it has no ETag")
	}
	return content, version, nil
}

// Write implements issuer.Store.
func (s *Store) Write(ctx context.Context, path string, content []byte, version string) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.write(ctx, path, content, version)
}

// prove writes under conditions that do not hold. A service that ignores them would let publishers undo the removal of
// a key.
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
	key, operation := s.locate("write", path)
	if err := object.CheckSize(content); err != nil {
		return fmt.Errorf("s3: %s: %w", operation, err)
	}
	secrets, err := s.secrets(ctx, operation)
	if err != nil {
		return err
	}
	in := &s3.PutObjectInput{Bucket: &s.bucket, Key: &key, ExpectedBucketOwner: s.owner, Body: bytes.NewReader(content),
		ContentType: aws.String(issuer.ContentType(path)), CacheControl: aws.String(object.CacheControl)}
	if version == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &version
	}
	_, err = s.client.PutObject(ctx, in)
	switch code := refusal(err); {
	case code == preconditionFailed, code == "ConditionalRequestConflict", code == "NoSuchKey": // deleted meanwhile
		return fmt.Errorf("%s: %w", operation, issuer.ErrChanged)
	case err != nil:
		return s.failed(operation, err, secrets)
	}
	return nil
}

// locate returns the key of a file, and the name of an operation on it, for errors.
func (s *Store) locate(verb, path string) (key, operation string) {
	key = s.prefix + path
	return key, fmt.Sprintf("%s %q", verb, "s3://"+s.bucket+"/"+key)
}
