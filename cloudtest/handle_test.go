package cloudtest_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// send sends a request with names and values of headers, leaving out those
// without a value, and returns the answer.
func send(t *testing.T, cloud *cloudtest.Cloud, method, address, body string, headers ...string) (
	status int, text string, header http.Header,
) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := cloud.Client().Transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(content), resp.Header
}

func basicAuth(user, password string) string {
	if user == "" {
		return ""
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestHandleServesAHostOverTLSAndCountsItsRequests(t *testing.T) {
	cloud := testenv.Cloud(t)
	cloud.Handle("Vault.Example", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "hello")
	}))
	if status, body, _ := send(t, cloud, http.MethodGet, "https://vault.example/v1/secret",
		""); status != http.StatusCreated || body != "hello" {
		t.Errorf("got %d %q, want 201 hello", status, body)
	}
	if n := cloud.Calls("vault.example", "GET /v1/secret"); n != 1 {
		t.Errorf("%d calls in %+v", n, cloud.Log())
	}
	cloud.AddFault(cloudtest.Fault{Service: "vault.example", Times: 1, Status: http.StatusTooManyRequests,
		Message: "slow down", RetryAfter: "7"})
	if status, body, _ := send(t, cloud, http.MethodGet, "https://vault.example/",
		""); status != http.StatusTooManyRequests || body != "slow down\n" {
		t.Errorf("fault: %d %q", status, body)
	}
	cloud.AddFault(cloudtest.Fault{Service: "vault.example", Rewrite: func(body []byte) []byte {
		return append(body, " world"...)
	}})
	if status, body, _ := send(t, cloud, http.MethodGet, "https://vault.example/", ""); status != http.StatusCreated ||
		body != "hello world" {
		t.Errorf("rewritten: %d %q", status, body)
	}
}

func TestHandleServesThePortOfItsHost(t *testing.T) {
	cloud := testenv.Cloud(t)
	for _, host := range []string{"Vault.Example:8443", "vault.example:9443", "default.example:443"} {
		cloud.Handle(host, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, host) }))
	}
	for url, want := range map[string]string{
		"https://vault.example:8443/":   "Vault.Example:8443",
		"https://vault.example:9443/":   "vault.example:9443",
		"https://default.example/":      "default.example:443",
		"https://default.example:8443/": "default.example:443",
	} {
		t.Run(url, func(t *testing.T) {
			if status, body, _ := send(t, cloud, http.MethodGet, url, ""); status != http.StatusOK || body != want {
				t.Errorf("%d %q, want %q", status, body, want)
			}
		})
	}
	if n := cloud.Calls("vault.example:8443", ""); n != 1 {
		t.Errorf("%d calls in %+v", n, cloud.Log())
	}
	// Another port, a look-alike, and a region without the service.
	for _, host := range []string{"vault.example:443", "sts.amazonaws.com.evil.example:443",
		"api.ecr-public.eu-west-1.amazonaws.com:443"} {
		if _, err := cloud.DialContext(t.Context(), "tcp", host); err == nil ||
			!strings.Contains(err.Error(), `no service at host "`+host+`"`) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestHandleReplacesAServiceOfTheCloud(t *testing.T) {
	cloud := testenv.Cloud(t)
	cloud.Handle("sts.eu-west-2.amazonaws.com", http.NotFoundHandler())
	if status, _, _ := send(t, cloud, http.MethodGet, "https://sts.eu-west-2.amazonaws.com/",
		""); status != http.StatusNotFound || cloud.Calls("sts", "") != 0 {
		t.Errorf("got %d after %+v, want 404 of the handler", status, cloud.Log())
	}
}

func TestVerifySignatureReturnsTheCaller(t *testing.T) {
	w := newEnvironment(t)
	creds, err := w.session(t).Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := func() *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"https://secretsmanager.eu-west-2.amazonaws.com/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		const hash = "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5" // SHA-256 of "body"
		if err := v4.NewSigner().SignHTTP(t.Context(), creds, req, hash, "secretsmanager", "eu-west-2",
			time.Now()); err != nil {
			t.Fatal(err)
		}
		return req
	}
	req := request()
	id, err := w.Cloud.AWS().VerifySignature(req, "secretsmanager", "eu-west-2")
	if err != nil || id.RoleARN != roleARN {
		t.Errorf("got %+v, %v, want the role %s", id, err, roleARN)
	}
	if body, err := io.ReadAll(req.Body); err != nil || string(body) != "body" {
		t.Errorf("the body afterwards: %q, %v", body, err)
	}
	changed := request()
	changed.Body = io.NopCloser(strings.NewReader("other"))
	for name, refused := range map[string]func() error{
		"another body": func() error {
			_, err := w.Cloud.AWS().VerifySignature(changed, "secretsmanager", "eu-west-2")
			return err
		},
		"another service": func() error { _, err := w.Cloud.AWS().VerifySignature(request(), "s3", "eu-west-2"); return err },
		"another region": func() error {
			_, err := w.Cloud.AWS().VerifySignature(request(), "secretsmanager", "eu-west-1")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := refused(); err == nil || !strings.Contains(err.Error(), "SignatureDoesNotMatch") {
				t.Errorf("got %v", err)
			}
		})
	}
}
