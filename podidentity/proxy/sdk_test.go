package proxy_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// sdkChain returns the credentials of the default chain of the SDK, which knows
// only the environment of an injected pod.
func sdkChain(t *testing.T, address string) (aws.Credentials, error) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://"+address+"/v1/credentials")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", secret)
	loaded, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Credentials.Retrieve(t.Context())
}

func TestDefaultChainOfTheGoSDK(t *testing.T) {
	for _, address := range startReady(t) {
		t.Run(address, func(t *testing.T) {
			got, err := sdkChain(t, address)
			if err != nil {
				t.Fatal(err)
			}
			if got.AccessKeyID != "ASIA1" || got.SecretAccessKey != "very/secret+1" || got.SessionToken != "session1==" ||
				!got.CanExpire || got.Expired() {
				t.Errorf("got %+v, want the first credentials of the server", got)
			}
		})
	}
}

// counter counts the requests of an SDK.
type counter struct {
	http.Handler
	requests int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.requests++
	c.Handler.ServeHTTP(w, r)
}

func TestGoSDKShowsTheReasonOf403AndDoesNotRetry(t *testing.T) {
	p := running(t, refusing(t, http.StatusForbidden, "NotBound", "no IAMBinding names this ServiceAccount"))
	kubetest.Eventually(t, "the server has refused", func() bool { return ask(t, p).status == http.StatusForbidden })
	counted := &counter{Handler: p}
	_, err := sdkChain(t, serve(t, counted)[0])
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "NotBound" ||
		api.ErrorMessage() != "no IAMBinding names this ServiceAccount" {
		t.Errorf("got error %v, want the refusal of the server", err)
	}
	if counted.requests != 1 {
		t.Errorf("got %d requests, want 1", counted.requests)
	}
}

func TestGoSDKWaitsForCredentialsThatAreNotThereYet(t *testing.T) {
	p := newProxy(t, &issuer{t: t})
	tries := 0
	late := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries == 3 {
			run(t, p)
			kubetest.Eventually(t, "the proxy has credentials", func() bool { return ask(t, p).status == http.StatusOK })
		}
		p.ServeHTTP(w, r)
	})
	if got, err := sdkChain(t, serve(t, late)[0]); err != nil || got.AccessKeyID != "ASIA1" || tries != 3 {
		t.Errorf("got %+v and error %v after %d tries, want credentials after 3", got, err, tries)
	}
}
