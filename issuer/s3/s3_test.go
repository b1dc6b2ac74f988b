package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/storetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/s3"
)

const (
	account = "123456789012"
	user    = "arn:aws:iam::" + account + ":user/publisher"
	region  = "eu-central-1"
	bucket  = "my-oidc"
	host    = bucket + ".s3." + region + ".amazonaws.com"
)

type environment struct {
	cloud  *cloudtest.Cloud
	opts   s3.Options
	secret string
}

func newEnvironment(t *testing.T, b cloudtest.S3Bucket) *environment {
	t.Helper()
	// The SDK reads the environment of the machine.
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	w := &environment{cloud: testenv.Cloud(t)}
	b.Account, b.Region = firstOf(b.Account, account), firstOf(b.Region, region)
	w.cloud.AWS().SetBucket(bucket, b)
	id, secret := w.cloud.AWS().AddUser(account, "publisher")
	w.secret = secret
	w.opts = s3.Options{Prefix: "cluster-1", Region: region, Owner: account, HTTPClient: w.cloud.Client(),
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")}
	return w
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (w *environment) open(t *testing.T) *s3.Store {
	t.Helper()
	store, err := s3.Open(t.Context(), bucket, w.opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestStore(t *testing.T) {
	storetest.CheckPrefixes(t, func(t *testing.T, prefix string) issuer.Store {
		t.Helper()
		w := newEnvironment(t, cloudtest.S3Bucket{Public: true})
		w.opts.Prefix = prefix
		return w.open(t)
	})
}

func TestCompatibleService(t *testing.T) {
	const host = "minio.example:9000"
	for name, set := range map[string]func(t *testing.T, w *environment){
		"option":      func(_ *testing.T, w *environment) { w.opts.Endpoint = "https://" + host },
		"environment": func(t *testing.T, _ *environment) { t.Setenv("AWS_ENDPOINT_URL_S3", "https://"+host) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, cloudtest.S3Bucket{Host: host})
			set(t, w)
			storetest.Check(t, w.open(t))
		})
	}
}

// A service that ignores conditions lets one publisher undo the removal of a
// key that another one has recorded.
func TestServiceThatIgnoresConditions(t *testing.T) {
	for name, tc := range map[string]struct{ match, noneMatch, refused bool }{
		"ignores both":          {false, false, true},
		"ignores If-Match":      {false, true, true},
		"ignores If-None-Match": {true, false, true},
		"ignores none":          {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			service := &looseService{match: tc.match, noneMatch: tc.noneMatch,
				files: map[string]string{"/my-oidc/cluster-1/" + issuer.RecordFile: "removal"}}
			server := httptest.NewServer(service)
			t.Cleanup(server.Close)
			w := newEnvironment(t, cloudtest.S3Bucket{})
			w.opts.Endpoint, w.opts.HTTPClient = server.URL, nil
			store := w.open(t)
			if !tc.refused {
				storetest.Check(t, &withoutRecord{store})
				if service.probes != 3 {
					t.Errorf("%d probes", service.probes)
				}
				return
			}
			for range 2 {
				testenv.CheckError(t, store.Write(t.Context(), issuer.RecordFile, []byte("x"), `"stale"`),
					provider.ErrMisconfigured, "use a service with conditional writes")
			}
			if got := service.files["/my-oidc/cluster-1/"+issuer.RecordFile]; got != "removal" {
				t.Errorf("the record is %q", got)
			}
		})
	}
}

// withoutRecord keeps the record of storetest.Check elsewhere.
type withoutRecord struct{ issuer.Store }

func (w *withoutRecord) Write(ctx context.Context, path string, content []byte, version string) error {
	if path == issuer.RecordFile {
		path = "another-record"
	}
	return w.Store.Write(ctx, path, content, version)
}

// looseService is a compatible service that knows some conditions. An ETag is
// the content.
type looseService struct {
	match, noneMatch bool
	mu               sync.Mutex
	files            map[string]string
	probes           int
}

func (s *looseService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, exists := s.files[r.URL.Path]
	tag := fmt.Sprintf("%q", content)
	ifMatch, ifNoneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/probe") {
		s.probes++
	}
	switch {
	case !exists && (r.Method == http.MethodGet || ifMatch != "" && s.match):
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<Error><Code>NoSuchKey</Code></Error>"))
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", tag)
		_, _ = w.Write([]byte(content))
	case s.match && ifMatch != "" && ifMatch != tag, s.noneMatch && ifNoneMatch == "*" && exists:
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		body, _ := io.ReadAll(r.Body) // the client writes it whole
		s.files[r.URL.Path] = string(body)
	}
}

func TestPublishedFiles(t *testing.T) {
	w := newEnvironment(t, cloudtest.S3Bucket{Public: true})
	storetest.CheckPublished(t, w.open(t), w.cloud.Client(), "https://"+host+"/cluster-1")
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		bucket cloudtest.S3Bucket
		set    func(w *environment)
		reason provider.Reason
		want   []string
	}{
		"bucket of another account that trusts ours": {
			bucket: cloudtest.S3Bucket{Account: "999999999999", Accounts: []string{account}, Public: true},
			reason: provider.ErrDenied, want: []string{"AccessDenied", "check that account 123456789012 owns the bucket"}},
		"no s3:GetObject": {set: func(w *environment) { w.cloud.AWS().Deny(user, "s3:GetObject") },
			reason: provider.ErrDenied, want: []string{"AccessDenied", "allow s3:GetObject, s3:PutObject and s3:ListBucket"}},
		"no s3:ListBucket and no file": {set: func(w *environment) { w.cloud.AWS().Deny(user, "s3:ListBucket") },
			reason: provider.ErrDenied, want: []string{"s3:ListBucket"}},
		"another region": {set: func(w *environment) { w.opts.Region = "us-west-2" },
			reason: provider.ErrMisconfigured, want: []string{"set the region of the bucket, eu-central-1"}},
		"no bucket": {bucket: cloudtest.S3Bucket{Host: "elsewhere.example"},
			reason: provider.ErrMisconfigured, want: []string{"NoSuchBucket", "create the bucket, or correct its name"}},
		"wrong secret": {set: func(w *environment) {
			id, _ := w.cloud.AWS().AddUser(account, "publisher")
			w.opts.Credentials = credentials.NewStaticCredentialsProvider(id, "wrong-"+w.secret, "")
		}, reason: provider.ErrDenied, want: []string{"SignatureDoesNotMatch", "check the credentials"}},
		"redirect": {set: func(w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "s3", Redirect: "https://attacker.example/"})
		}, reason: provider.ErrUnavailable, want: []string{"redirect, which is not followed"}},
		"no conditional writes": {set: func(w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "s3", Status: 501, Code: "NotImplemented", Message: "no"})
		}, reason: provider.ErrMisconfigured, want: []string{"use a service with conditional writes"}},
		"no credentials": {set: func(w *environment) { w.opts.Credentials = nil },
			reason: provider.ErrUnavailable,
			want:   []string{`read "s3://my-oidc/cluster-1/openid/v1/jwks"`, "give this process AWS credentials"}},
		"no role to assume": {set: func(w *environment) {
			client := sts.New(sts.Options{Region: region, HTTPClient: w.cloud.Client(), Credentials: w.opts.Credentials})
			w.opts.Credentials = stscreds.NewAssumeRoleProvider(client, "arn:aws:iam::"+account+":role/missing")
		}, reason: provider.ErrUnavailable,
			want: []string{"not authorized to perform: sts:AssumeRole", "give this process AWS credentials"}},
		"a secret in the answer": {set: func(w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "s3", Status: 400, Code: "Bad", Message: "not a good secret: " + w.secret})
		}, reason: provider.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, tc.bucket)
			if tc.set != nil {
				tc.set(w)
			}
			_, _, err := w.open(t).Read(t.Context(), issuer.KeysFile)
			storetest.CheckRefused(t, err, w.secret, tc.reason, tc.want...)
		})
	}
}

// A bucket of another account accepts the files of a Store without an owner.
func TestOwnerKeepsFilesOutOfAnotherAccountsBucket(t *testing.T) {
	w := newEnvironment(t, cloudtest.S3Bucket{Account: "999999999999", Accounts: []string{account}})
	testenv.CheckError(t, w.open(t).Write(t.Context(), issuer.KeysFile, []byte("keys"), ""), provider.ErrDenied)
	w.opts.Owner = ""
	store := w.open(t)
	if _, _, err := store.Read(t.Context(), issuer.KeysFile); !errors.Is(err, issuer.ErrNotExist) {
		t.Errorf("the bucket is open: %v", err)
	}
}

func TestConflictsAreChanges(t *testing.T) {
	for name, fault := range map[string]cloudtest.Fault{
		"another write at the same time":    {Status: 409, Code: "ConditionalRequestConflict"},
		"precondition of another code name": {Status: 412, Code: "ConditionNotMet"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, cloudtest.S3Bucket{})
			fault.Service, fault.Action = "s3", "PutObject"
			w.cloud.AddFault(fault)
			if err := w.open(t).Write(t.Context(), issuer.KeysFile, []byte("x"), ""); !errors.Is(err, issuer.ErrChanged) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestOldAnswersOverwriteNothing(t *testing.T) {
	w := newEnvironment(t, cloudtest.S3Bucket{})
	honest := w.open(t)
	w.opts.HTTPClient = storetest.Stale(w.cloud.Client())
	storetest.CheckStale(t, honest, w.open(t))
}

func TestBadAnswers(t *testing.T) {
	for want, answer := range storetest.BadAnswers() {
		t.Run(want, func(t *testing.T) {
			server := httptest.NewServer(answer)
			t.Cleanup(server.Close)
			w := newEnvironment(t, cloudtest.S3Bucket{})
			w.opts.Endpoint, w.opts.HTTPClient = server.URL, nil
			_, _, err := w.open(t).Read(t.Context(), issuer.KeysFile)
			testenv.CheckError(t, err, provider.ErrUnavailable, want)
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		bucket string
		opts   s3.Options
		want   string
	}{
		"no bucket":             {"", s3.Options{Region: region}, "not the name of a bucket"},
		"a bucket with a slash": {"a/../b", s3.Options{Region: region}, "not the name of a bucket"},
		"an ARN":                {"arn:aws:s3:::b", s3.Options{Region: region}, "not the name of a bucket"},
		"a short owner":         {bucket, s3.Options{Region: region, Owner: "1234"}, `"1234" is not an account ID`},
		"a prefix that climbs":  {bucket, s3.Options{Region: region, Prefix: "a/../b"}, `prefix "a/../b"`},
		"a prefix with a query": {bucket, s3.Options{Region: region, Prefix: "a?b"}, `prefix "a?b"`},
		"plain http":            {bucket, s3.Options{Region: region, Endpoint: "http://minio.example"}, "https://"},
		"loopback look-alike":   {bucket, s3.Options{Region: region, Endpoint: "http://127.0.0.1.example"}, "https://"},
		"loopback as a user":    {bucket, s3.Options{Region: region, Endpoint: "http://127.0.0.1@minio.example"}, "https://"},
		"a password": {bucket, s3.Options{Region: region, Endpoint: "https://me:secret@minio.example"},
			"user name"},
		"a path":    {bucket, s3.Options{Region: region, Endpoint: "https://minio.example/s3"}, "holds a path"},
		"no region": {bucket, s3.Options{}, "set AWS_REGION"},
	} {
		t.Run(name, func(t *testing.T) {
			newEnvironment(t, cloudtest.S3Bucket{})
			_, err := s3.Open(context.Background(), tc.bucket, tc.opts)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestEnvironmentOfTheProcess(t *testing.T) {
	const secret = "hidden-in-a-file"
	for name, tc := range map[string]struct {
		config, profile, endpoint, want string
	}{
		"program that fails": {"[default]\ncredential_process = sh -c 'echo " + secret + "; exit 1'", "", "",
			"the program of credential_process failed"},
		"program that prints something else": {"[default]\ncredential_process = echo " + secret, "", "",
			"the program of credential_process failed"},
		"profile that is missing": {"[default]\n", "absent", "", "AWS_CONFIG_FILE"},
		"source that is unknown": {"[default]\nrole_arn = arn:aws:iam::1:role/x\ncredential_source = " + secret,
			"", "", "AWS_CONFIG_FILE"},
		"endpoint without TLS": {"", "", "http://minio.example", "it has to begin with https://"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, cloudtest.S3Bucket{})
			file := t.TempDir() + "/config"
			if err := os.WriteFile(file, []byte(tc.config), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("AWS_CONFIG_FILE", file)
			t.Setenv("AWS_PROFILE", tc.profile)
			t.Setenv("AWS_ENDPOINT_URL", tc.endpoint)
			w.opts.Credentials = nil
			store, err := s3.Open(t.Context(), bucket, w.opts)
			if err == nil {
				_, _, err = store.Read(t.Context(), issuer.KeysFile)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), secret) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
