package gcp_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// clearEnvironment leaves no credentials for the library to find.
func clearEnvironment(t *testing.T) {
	t.Helper()
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("GCE_METADATA_HOST", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("APPDATA", t.TempDir())
}

func (w *environment) controller(t *testing.T, more ...auth.Option) (*gcp.Token, error) {
	t.Helper()
	return get(t, &gcp.Provider{}, append([]auth.Option{auth.WithHTTPClient(w.Cloud.Client())}, more...)...)
}

func TestControllerFromMetadata(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.inGKE()
	token, err := w.controller(t, auth.WithScopes("https://a.example", "https://b.example"))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.Cloud.GCP().Identity(token.AccessToken())
	if id.Email != email("controller") || strings.Join(id.Scopes, " ") != "https://a.example https://b.example" ||
		token.GetDuration() < 50*time.Minute {
		t.Errorf("got the token of %+v", id)
	}
	if _, err = w.controller(t); err != nil || w.Cloud.Calls("gcp-metadata", "") != 2 {
		t.Errorf("%d calls, %v", w.Cloud.Calls("gcp-metadata", ""), err)
	}
}

func TestControllerWithoutAnIdentity(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	_, err := w.controller(t)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "gcp: find own GCP credentials", "name a ServiceAccount")
	end := w.Cloud.AddFault(cloudtest.Fault{Service: "gcp-metadata", Status: 403,
		Message: "Unable to generate access token; IAM returned 403 Forbidden: The caller does not have permission\n" +
			"This error could be caused by a missing IAM policy binding on the target IAM service account.\n"})
	_, err = w.controller(t)
	testenv.CheckError(t, err, auth.ErrDenied, "missing IAM policy binding", "roles/iam.workloadIdentityUser")
	end()
	// The status of IAM counts, not that of the metadata server.
	for text, reason := range map[string]provider.Reason{"404 Not Found": auth.ErrDenied,
		"408 Request Timeout":   auth.ErrUnavailable,
		"429 Too Many Requests": auth.ErrThrottled, "503 Service Unavailable": auth.ErrUnavailable, "4": auth.ErrDenied} {
		end := w.Cloud.AddFault(cloudtest.Fault{Service: "gcp-metadata", Status: http.StatusForbidden,
			Message: "Unable to generate access token; IAM returned " + text})
		_, err = w.controller(t)
		testenv.CheckError(t, err, reason, "IAM returned "+text)
		end()
	}
	for name, body := range map[string]string{"HTML": "<html>", "empty": "{}",
		"expired": `{"access_token":"x","expires_in":0}`} {
		end := w.Cloud.AddFault(cloudtest.Fault{Service: "gcp-metadata", Body: body})
		if _, err := w.controller(t); err == nil {
			t.Errorf("%s was taken for a token", name)
		}
		end()
	}
}

func (w *environment) externalAccount(t *testing.T) string {
	t.Helper()
	token := w.TokenFile(t, "system", "controller", "https://iam.googleapis.com/"+poolProvider)
	return `{"type":"external_account","audience":"//iam.googleapis.com/` + poolProvider +
		`","subject_token_type":"urn:ietf:params:oauth:token-type:jwt",` +
		`"token_url":"https://sts.googleapis.com/v1/token","credential_source":{"file":"` + token + `"}}`
}

// The file that the environment names wins over the metadata server, as in
// Google's libraries.
func TestControllerFromFile(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.inGKE()
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", testenv.WriteFile(t, w.externalAccount(t)))
	for want := 1; want <= 2; want++ {
		token, err := w.controller(t)
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := w.Cloud.GCP().Identity(token.AccessToken()); id.Subject != "system:serviceaccount:system:controller" ||
			w.Cloud.Calls("gcp-sts", "") != want {
			t.Errorf("got the token of %+v, %d exchanges", id, w.Cloud.Calls("gcp-sts", ""))
		}
	}
	w.Cloud.GCP().RemoveWorkloadIdentityProvider(poolProvider)
	_, err := w.controller(t)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "gcp: find own GCP credentials", "invalid_target", "HTTP 400")
	defer w.Cloud.AddFault(cloudtest.Fault{Service: "gcp-sts", Hang: true})()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = auth.GetAccessToken(ctx, &gcp.Provider{}, auth.WithHTTPClient(w.Cloud.Client()))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a context that ends: %v", err)
	}
}

// The library makes the requests for keys of service accounts without a
// context.
func TestControllerFromKey(t *testing.T) {
	clearEnvironment(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	content,
		err := json.Marshal(map[string]string{"type": "service_account", "client_email": email("key"),
		"private_key":    string(block),
		"private_key_id": "1", "token_uri": "https://oauth2.googleapis.com/token"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", testenv.WriteFile(t, string(content)))
	reply := func(*http.Request) (*http.Response, error) {
		return answer(http.StatusOK, `{"access_token":"key-token","expires_in":3600}`), nil
	}
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) { return reply(r) })}
	token, err := auth.GetAccessToken(t.Context(), &gcp.Provider{}, auth.WithHTTPClient(client))
	if err != nil || token.GetDuration() < 50*time.Minute {
		t.Fatalf("got %v, %v", token, err)
	}
	reply = func(*http.Request) (*http.Response, error) {
		return answer(http.StatusBadRequest, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`), nil
	}
	_, err = auth.GetAccessToken(t.Context(), &gcp.Provider{}, auth.WithHTTPClient(client))
	testenv.CheckError(t, err, auth.ErrDenied, "Invalid JWT Signature")
	reply = func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = auth.GetAccessToken(ctx, &gcp.Provider{}, auth.WithHTTPClient(client)); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("with a context that ends: %v", err)
	}
}

func TestControllerFromWellKnownFile(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	dir := filepath.Join(os.Getenv("HOME"), ".config", "gcloud")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "application_default_credentials.json"), []byte(w.externalAccount(t)),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.controller(t); err != nil {
		t.Error(err)
	}
}

func TestControllerFilesThatAreMalformed(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	for name, tc := range map[string]struct{ content, want string }{
		"empty":     {"", "not JSON"},
		"no JSON":   {"-----BEGIN PRIVATE KEY-----", "not JSON"},
		"no type":   {`{"secret":"do-not-print"}`, "kind"},
		"a program": {`{"type":"external_account","credential_source":{"executable":{"command":"/bin/false"}}}`, "program"},
		"a program to impersonate with": {
			`{"type":"impersonated_service_account","service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/x:generateAccessToken",` +
				`"source_credentials":{"type":"external_account","Credential_Source":{"executable":{"command":"/bin/false"}}}}`,
			"program"},
		"a program behind another account": {
			`{"type":"impersonated_service_account","source_credentials":{"type":"impersonated_service_account",` +
				`"source_credentials":{"type":"external_account","credential_source":{"executable":{"command":"/bin/false"}}}}}`,
			"program"},
		"a list":      {`[]`, "not JSON"},
		"very large":  {strings.Repeat(" ", 2<<20), "larger than"},
		"bad sources": {`{"type":"external_account","audience":"a","credential_source":{}}`, "kind"},
	} {
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", testenv.WriteFile(t, tc.content))
		_, err := w.controller(t)
		testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want, "GOOGLE_APPLICATION_CREDENTIALS")
		if strings.Contains(err.Error(), "do-not-print") {
			t.Errorf("%s: the error quotes the file: %v", name, err)
		}
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "missing"))
	_, err := w.controller(t)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "missing")
	if n := w.Cloud.Calls("", ""); n != 0 {
		t.Errorf("%d calls", n)
	}
}
