package aws_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
)

// clearEnvironment leaves nothing for the SDK's chain to find.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE", "AWS_CA_BUNDLE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	nothing := filepath.Join(t.TempDir(), "nothing")
	t.Setenv("AWS_CONFIG_FILE", nothing)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// In a pod with IAM roles for service accounts the controller is its own ServiceAccount.
func TestControllerWithWebIdentity(t *testing.T) {
	clearEnvironment(t)
	w := newWorld(t)
	jwt, err := w.issuer.Sign(w.issuer.Claims(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}},
		[]string{aws.DefaultAudience}, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(jwt), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ROLE_ARN", role("tenant-a"))
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
	provider := &aws.Provider{}
	opts := []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.cloud.Client())}
	for want := 1; want <= 2; want++ {
		token, err := auth.GetAccessToken(t.Context(), provider, opts...)
		if err != nil {
			t.Fatal(err)
		}
		own, err := aws.FromToken(token)
		if err != nil || w.cloud.Calls("sts", "") != want {
			t.Errorf("%d calls, want %d: without a cache each call makes an exchange; %v", w.cloud.Calls("sts", ""), want, err)
		}
		if id, _ := w.cloud.AWS().Identity(own.AccessKeyID()); id.RoleARN != role("tenant-a") {
			t.Errorf("got the credentials of %+v", id)
		}
	}
	_, err = auth.GetAccessToken(t.Context(), provider, append(opts, auth.WithSTSEndpoint("https://sts.amazonaws.com"))...)
	if calls := w.cloud.Log(); err != nil || calls[len(calls)-1].Host != "sts.amazonaws.com" {
		t.Errorf("with an endpoint: %v, %+v", err, calls)
	}
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	_, err = auth.GetAccessToken(t.Context(), provider, opts...)
	checkError(t, err, auth.ErrDenied, "AccessDenied", "controller's own")
}

// EKS Pod Identity, and every other agent that speaks the container credentials protocol.
func TestControllerWithPodIdentity(t *testing.T) {
	clearEnvironment(t)
	expiry := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "pod-token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"AccessKeyId":"ASIAPOD","SecretAccessKey":"s","Token":"t","Expiration":"` + expiry.Format(time.RFC3339) + `","AccountId":"123456789012"}`))
	}))
	defer agent.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-token")
	// A proxy that would swallow the request must not be asked for the agent on loopback.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	token, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := aws.FromToken(token)
	if err != nil || own.AccessKeyID() != "ASIAPOD" || own.ExpiresAt().After(expiry) || own.GetDuration() < 50*time.Minute {
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
	checkError(t, err, auth.ErrUnavailable, "aws: find the controller's own AWS credentials", "name a ServiceAccount")
}
