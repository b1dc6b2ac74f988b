package aws_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// clearEnvironment leaves nothing for the SDK's chain to find.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN",
		"AWS_ROLE_SESSION_NAME",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE", "AWS_CA_BUNDLE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	nothing := filepath.Join(t.TempDir(), "nothing")
	t.Setenv("AWS_CONFIG_FILE", nothing)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// setWebIdentity makes the controller ServiceAccount app of tenant A.
func (w *environment) setWebIdentity(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_ROLE_ARN", role("tenant-a"))
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", w.TokenFile(t, "tenant-a", "app", aws.DefaultAudience))
}

// In a pod with IAM roles for service accounts the controller is its own
// ServiceAccount.
func TestControllerWithWebIdentity(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.setWebIdentity(t)
	provider := &aws.Provider{}
	opts := []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.Cloud.Client())}
	for want := 1; want <= 2; want++ {
		own, err := get(t, provider, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if w.Cloud.Calls("sts", "") != want {
			t.Errorf("%d calls, want %d: without a cache each call makes an exchange", w.Cloud.Calls("sts", ""), want)
		}
		if id, _ := w.Cloud.AWS().Identity(own.AccessKeyID()); id.RoleARN != role("tenant-a") {
			t.Errorf("got the credentials of %+v", id)
		}
	}
	_, err := auth.GetAccessToken(t.Context(), provider,
		append(opts, auth.WithSTSEndpoint("https://sts.amazonaws.com"))...)
	if calls := w.Cloud.Log(); err != nil || calls[len(calls)-1].Host != "sts.amazonaws.com" {
		t.Errorf("with an endpoint: %v, %+v", err, calls)
	}
	w.Cloud.AWS().RemoveRole(role("tenant-a"))
	_, err = auth.GetAccessToken(t.Context(), provider, opts...)
	testenv.CheckError(t, err, auth.ErrDenied, "AccessDenied", "find own AWS credentials")
}

// IsOwnIdentityError distinguishes missing credentials of the controller from a
// role that refuses them, with and without a cache.
func TestIsOwnIdentityError(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.setWebIdentity(t)
	provider := &aws.Provider{}
	opts := []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.Cloud.Client()),
		aws.WithAssumeRole(aws.AssumeRole{RoleARN: target + "-missing"})}
	_, err := auth.GetAccessToken(t.Context(), provider, opts...)
	testenv.CheckError(t, err, auth.ErrDenied, "AccessDenied", target)
	if provider.IsOwnIdentityError(err) {
		t.Errorf("an error of the role: %v", err)
	}
	w.Cloud.AWS().RemoveRole(role("tenant-a"))
	cached := append(slices.Clone(opts), testenv.Cached(t, "tenant-a"))
	for _, opts := range [][]auth.Option{opts, cached, cached} {
		_, err = auth.GetAccessToken(t.Context(), provider, opts...)
		testenv.CheckError(t, err, auth.ErrDenied, "AccessDenied", "find own AWS credentials")
		if !provider.IsOwnIdentityError(err) {
			t.Errorf("an error of the controller's own identity: %v", err)
		}
	}
}

// EKS Pod Identity, and every other agent that speaks the container credentials
// protocol.
func TestControllerWithPodIdentity(t *testing.T) {
	clearEnvironment(t)
	expiry := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "pod-token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_,
			_ = w.Write([]byte(`{"AccessKeyId":"ASIAPOD","SecretAccessKey":"s","Token":"t","Expiration":"` +
			expiry.Format(time.RFC3339) + `","AccountId":"123456789012"}`))
	}))
	defer agent.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-token")
	// A proxy that would swallow the request must not be asked for the agent on
	// loopback.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	own, err := get(t, &aws.Provider{}, auth.WithSTSRegion("eu-central-1"))
	if err != nil || own.AccessKeyID() != "ASIAPOD" || own.ExpiresAt().After(expiry) ||
		own.GetDuration() < 50*time.Minute {
		t.Errorf("got %v, %v", own, err)
	}
}

func TestControllerWithStaticKeys(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIASTATIC")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	creds, err := aws.NewCredentialsProvider(auth.WithSTSRegion("eu-central-1")).Retrieve(t.Context())
	if err != nil || creds.AccessKeyID != "AKIASTATIC" || creds.CanExpire {
		t.Errorf("got key %q, can expire %t, %v", creds.AccessKeyID, creds.CanExpire, err)
	}
}

func TestControllerWithoutAnIdentity(t *testing.T) {
	clearEnvironment(t)
	_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"))
	testenv.CheckError(t, err, auth.ErrUnavailable, "aws: find own AWS credentials", "name a ServiceAccount")
}

// A program of the shared configuration runs only where a person runs the
// controller.
func TestControllerWithCredentialProcess(t *testing.T) {
	const answer = `{"Version":1,"AccessKeyId":"AKIAPROCESS","SecretAccessKey":"secret"}`
	for name, text := range map[string]string{
		"plain": "[default]\ncredential_process = touch %; echo '" + answer + "'\n",
		"chained": "[default]\nrole_arn = " + target + "\nsource_profile = base\n" +
			"[profile base]\ncredential_process = touch %; echo '" + answer + "'\n",
	} {
		clearEnvironment(t)
		ran := filepath.Join(t.TempDir(), "ran")
		t.Setenv("AWS_CONFIG_FILE", testenv.WriteFile(t, strings.ReplaceAll(text, "%", ran)))
		p := &aws.Provider{}
		refused := func() {
			t.Helper()
			_, err := auth.GetAccessToken(t.Context(), p, auth.WithSTSRegion("eu-central-1"))
			testenv.CheckError(t, err, auth.ErrMisconfigured, "credential_process", "auth.WithAllowShellOut")
		}
		refused()
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s: the program ran", name)
		}
		if name == "plain" {
			own, err := get(t, p, auth.WithSTSRegion("eu-central-1"), auth.WithAllowShellOut())
			if err != nil || own.AccessKeyID() != "AKIAPROCESS" {
				t.Errorf("got %v, %v", own, err)
			}
			refused() // although the chain is there now
		}
	}
}

// Errors of the controller quote neither files nor the output of programs:
// conditions hold them.
func TestControllerErrorsQuoteNothing(t *testing.T) {
	const secret = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, secret, http.StatusForbidden)
	}))
	defer agent.Close()
	for name, tc := range map[string]struct{ variable, value, want string }{
		"process": {"AWS_CONFIG_FILE", testenv.WriteFile(t, "[default]\ncredential_process = echo "+secret),
			"credential_process failed"},
		"process fails": {"AWS_CONFIG_FILE", testenv.WriteFile(t, "[default]\ncredential_process = echo "+secret+"; false"),
			"credential_process failed"},
		"bad number": {"AWS_CONFIG_FILE", testenv.WriteFile(t, "[default]\nmax_attempts = "+secret), "cannot be used"},
		"half of keys": {"AWS_SHARED_CREDENTIALS_FILE", testenv.WriteFile(t, "[default]\naws_secret_access_key = "+secret),
			"cannot be used"},
		"no profile": {"AWS_PROFILE", "absent", `no profile "absent"`},
		"agent":      {"AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL, "not one of AWS"},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnvironment(t)
			t.Setenv(tc.variable, tc.value)
			_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"),
				auth.WithAllowShellOut())
			testenv.CheckError(t, err, auth.ErrUnavailable, tc.want)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the message holds the secret: %v", err)
			}
			if cause := errors.Unwrap(err); cause != nil && strings.HasPrefix(name, "process") {
				t.Errorf("the cause is %v", cause)
			}
		})
	}
}

func TestControllerAnswersAreBounded(t *testing.T) {
	clearEnvironment(t)
	const size = 64 << 20
	var whole atomic.Int64
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte(" "), 1<<20)
		for range size / len(chunk) { // more than the system buffers for a reader that stalls
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		whole.Add(1)
	}))
	defer agent.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL)
	_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"))
	testenv.CheckError(t, err, auth.ErrUnavailable, "larger than")
	agent.Close()
	if n := whole.Load(); n > 0 {
		t.Errorf("%d answers were read whole", n)
	}
}

// The client that the controller gives has a trust of its own, whatever
// AWS_CA_BUNDLE says, and is asked for everything.
func TestControllerWithClient(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	t.Setenv("AWS_CA_BUNDLE", testenv.WriteFile(t, string(newEnvironment(t).Cloud.CA())))
	w.setWebIdentity(t)
	if _, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"),
		auth.WithHTTPClient(w.Cloud.Client())); err != nil {
		t.Error(err)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")
	asked := ""
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = r.URL.String()
		body := io.NopCloser(strings.NewReader(`{"AccessKeyId":"ASIAPOD","SecretAccessKey":"s","Token":"t"}`))
		return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
	})}
	_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"),
		auth.WithHTTPClient(client))
	if err != nil || asked != "http://169.254.170.23/v1/credentials" {
		t.Errorf("asked %q, %v", asked, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
