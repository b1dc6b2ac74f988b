package azure_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// tokenFile writes the token that the webhook of Entra Workload ID mounts into
// a pod.
func (w *environment) tokenFile(t *testing.T) string { return w.mountToken(t, azure.DefaultAudience) }

func (w *environment) mountToken(t *testing.T, audience string) string {
	t.Helper()
	return w.TokenFile(t, "tenant-a", "app", audience)
}

// configure sets the tenant and the client ID of the controller, and an
// environment variable of its credential.
func configure(t *testing.T, tenant, clientID, name, value string) {
	t.Helper()
	t.Setenv("AZURE_TENANT_ID", tenant)
	t.Setenv("AZURE_CLIENT_ID", clientID)
	t.Setenv(name, value)
}

func (w *environment) controller(t *testing.T, p *azure.Provider,
	more ...auth.Option) (cloudtest.AzureIdentity, error) {
	t.Helper()
	token, err := get(t, p, append([]auth.Option{auth.WithHTTPClient(w.http)}, more...)...)
	if err != nil {
		return cloudtest.AzureIdentity{}, err
	}
	return w.whose(token), nil
}

// In a pod with Entra Workload ID the controller is its own ServiceAccount.
// Every token is a new one, although the SDK would keep the old one.
func TestControllerWithWorkloadIdentity(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	configure(t, tenantID, clientA, "AZURE_FEDERATED_TOKEN_FILE", w.tokenFile(t))
	t.Setenv("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com/")
	p := &azure.Provider{}
	for want := 1; want <= 3; want++ {
		id, err := w.controller(t, p)
		if err != nil {
			t.Fatal(err)
		}
		if id.ClientID != clientA || id.Subject != "system:serviceaccount:tenant-a:app" ||
			id.Audience != "https://management.azure.com" {
			t.Errorf("got a token of %+v", id)
		}
		if n := w.Cloud.Calls("entra", "token"); n != want {
			t.Errorf("%d exchanges for %d tokens", n, want)
		}
	}
	if id, err := w.controller(t, p, auth.WithScopes("https://storage.azure.com/.default")); err != nil ||
		id.Audience != "https://storage.azure.com" {
		t.Errorf("got a token of %+v, %v, want one for storage", id, err)
	}
	w.Cloud.Azure().RemoveFederatedCredentials(tenantID, clientA)
	w.Cloud.Azure().SetManagedIdentity(tenantID, clientB)
	_, err := w.controller(t, p)
	testenv.CheckError(t, err, auth.ErrDenied, "workload identity", "AADSTS70025", "HTTP 401")
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", filepath.Join(t.TempDir(), "nothing"))
	_, err = w.controller(t, p)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "workload identity", "nothing")
}

func TestControllerWithSecret(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	const secret = "abc8Q~the-secret-of-the-application"
	w.Cloud.Azure().SetClientSecret(tenantID, clientB, secret)
	configure(t, tenantID, clientB, "AZURE_CLIENT_SECRET", secret)
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", w.tokenFile(t))
	p := &azure.Provider{}
	if id, err := w.controller(t, p); err != nil || id.ClientID != clientB || id.Subject != "" {
		t.Errorf("the environment comes first: %+v, %v", id, err)
	}
	for _, call := range w.Cloud.Log() {
		for _, v := range call.Parameters {
			if strings.Contains(v, secret) {
				t.Error("the fake's log holds the secret")
			}
		}
	}
	w.Cloud.Azure().SetClientSecret(tenantID, clientB, "another one")
	_, err := w.controller(t, p)
	testenv.CheckError(t, err, auth.ErrDenied, "environment", "AADSTS7000215", "renew the client secret")
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the secret shows: %v", err)
	}
	t.Setenv("AZURE_TENANT_ID", "")
	_, err = w.controller(t, &azure.Provider{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "AZURE_TENANT_ID")
}

func TestControllerWithCertificate(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "controller"},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	file := testenv.WriteFile(t, string(content))
	configure(t, tenantID, clientB, "AZURE_CLIENT_CERTIFICATE_PATH", file)
	_, err = w.controller(t, &azure.Provider{})
	testenv.CheckError(t, err, auth.ErrDenied, "AADSTS700027", "register the certificate")
	w.Cloud.Azure().SetClientCertificate(tenantID, clientB, certificate)
	if id, err := w.controller(t, &azure.Provider{}); err != nil || id.ClientID != clientB {
		t.Errorf("got a token of %+v, %v, want one of %q", id, err, clientB)
	}
	if err := os.WriteFile(file, []byte("gone"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = w.controller(t, &azure.Provider{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "environment")
}

func TestControllerWithManagedIdentity(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.unhurried()
	w.Cloud.Azure().SetManagedIdentity(tenantID, clientB)
	p := &azure.Provider{}
	seen := map[string]bool{}
	for range 2 {
		token, err := get(t, p, auth.WithHTTPClient(w.http))
		if err != nil {
			t.Fatal(err)
		}
		if id := w.whose(token); id.ClientID != clientB || id.Audience != "https://management.azure.com" {
			t.Errorf("got a token of %+v", id)
		}
		seen[token.AccessToken().Token] = true
	}
	if len(seen) != 2 || w.Cloud.Calls("imds", "token") != 2 {
		t.Errorf("%d tokens, calls: %+v", len(seen), w.Cloud.Log())
	}
	t.Setenv("AZURE_CLIENT_ID", clientB)
	if id, err := w.controller(t, p); err != nil || id.ClientID != clientB {
		t.Errorf("got a token of %+v, %v, want one of %q", id, err, clientB)
	}
	t.Setenv("AZURE_CLIENT_ID", clientA)
	_, err := w.controller(t, p)
	testenv.CheckError(t, err, auth.ErrDenied, "managed identity", "Identity not found", "HTTP 400")
}

const (
	goodDocument = `{"issuer":"https://login.microsoftonline.com/t/v2.0","token_endpoint":"https://login.microsoftonline.com/t/oauth2/v2.0/token",` +
		`"authorization_endpoint":"https://login.microsoftonline.com/t/oauth2/v2.0/authorize"}`
	goodToken = `{"token_type":"Bearer","expires_in":3600,"access_token":"t"}`
)

// Cancelling ends the search at once, whatever it waits for.
func TestControllerCancel(t *testing.T) {
	clearEnvironment(t)
	hangsAt := func(name, path string) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := 0
			client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, path) {
					return respond(r, http.StatusOK, goodDocument), nil
				}
				asked++
				cancel()
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}
			start := time.Now()
			_, err := auth.GetAccessToken(ctx, &azure.Provider{}, auth.WithHTTPClient(client))
			if took := time.Since(start); !errors.Is(err, context.Canceled) || took > 0 || asked != 1 {
				t.Errorf("%s: %v after %s of the bubble and %d requests", name, err, took, asked)
			}
		})
	}
	hangsAt("probe", "/metadata/identity/oauth2/token")
	configure(t, tenantID, clientB, "AZURE_CLIENT_SECRET", "the secret of it")
	hangsAt("configuration", "/openid-configuration")
	hangsAt("token", "/oauth2/v2.0/token")
}

// unhurried has the environment's client wait for the metadata service for
// ever. Where there is one, it answers within the second that the provider
// gives it, but this machine may be busy.
func (w *environment) unhurried() {
	next := w.http.Transport
	w.http = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	})}
}

func TestControllerWithoutAnIdentity(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.unhurried()
	_, err := w.controller(t, &azure.Provider{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "azure: find own Azure credentials", "AZURE_CLIENT_SECRET",
		"AZURE_FEDERATED_TOKEN_FILE", "knows no identity", "name a ServiceAccount", "azure.workload.identity/use")
	nowhere := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host != "169.254.169.254" || r.URL.Scheme != "http" {
			t.Errorf("%s was asked", r.URL)
		}
		return nil, os.ErrDeadlineExceeded
	})}
	_, err = get(t, &azure.Provider{}, auth.WithHTTPClient(nowhere))
	testenv.CheckError(t, err, auth.ErrUnavailable, "there is no metadata service")
	hotspot := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return respond(r, 400, "<html>"), nil
	})}
	_, err = get(t, &azure.Provider{}, auth.WithHTTPClient(hotspot))
	testenv.CheckError(t, err, auth.ErrUnavailable, "knows no identity")
}

func TestControllerWhenEntraFails(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.Cloud.Azure().SetManagedIdentity(tenantID, clientB)
	configure(t, tenantID, clientA, "AZURE_FEDERATED_TOKEN_FILE", w.tokenFile(t))
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"throttled": {cloudtest.Fault{Action: "token", Status: 429, Code: "temporarily_unavailable",
			Message: "AADSTS90055: slow down"}, auth.ErrThrottled, "AADSTS90055"},
		"down": {cloudtest.Fault{Action: "token", Status: 503, Code: "temporarily_unavailable"},
			auth.ErrUnavailable, "HTTP 503"},
		"redirect": {cloudtest.Fault{Redirect: "https://evil.example/"}, auth.ErrUnavailable, "redirect"},
		"cut":      {cloudtest.Fault{Cut: true}, auth.ErrUnavailable, "no answer"},
		"HTML as configuration": {cloudtest.Fault{Action: "openid-configuration", Body: "<html>"}, auth.ErrUnavailable,
			"workload identity"},
		"HTML as token": {cloudtest.Fault{Action: "token", Body: "<html>"}, auth.ErrUnavailable, "workload identity"},
		"10 MB": {cloudtest.Fault{Action: "token", Body: "{" + strings.Repeat(" ", 10<<20)},
			auth.ErrUnavailable, "larger than"},
		"no such tenant": {cloudtest.Fault{Status: 400, Code: "invalid_request",
			Message: "AADSTS90002: Tenant 'x' not found."}, auth.ErrMisconfigured, "AADSTS90002"},
		"refused": {cloudtest.Fault{Action: "token", Status: 401, Code: "invalid_client",
			Message: "AADSTS700213: no"}, auth.ErrDenied, "AADSTS700213"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &azure.Provider{}
			end := w.Cloud.AddFault(tc.fault)
			_, err := w.controller(t, p)
			testenv.CheckError(t, err, tc.reason, tc.want, "azure: ")
			end()
			if _, err := w.controller(t, p); err != nil {
				t.Errorf("the failure is remembered: %v", err)
			}
		})
	}
	if w.Cloud.Calls("imds", "") != 0 {
		t.Error("the managed identity took the place of an identity that was refused")
	}
}

// The token in the controller's file goes to another cloud only with the
// audience of that cloud.
func TestTokenFileAtAnotherCloud(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	p := &azure.Provider{PrivateClouds: []azure.Cloud{privateCloud()}}
	w.trustFor("https://"+ownAuthority, ownTenant, clientA, "system:serviceaccount:tenant-a:app")
	own := azure.WithAuthorityHost("https://" + ownAuthority)
	configure(t, ownTenant, clientA, "AZURE_FEDERATED_TOKEN_FILE", w.tokenFile(t))
	_, err := w.controller(t, p, own)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "AZURE_FEDERATED_TOKEN_FILE", `"https://`+ownAuthority+`"`)
	testenv.ExpectNone(t, w.Cloud.Calls("", ""))
	configure(t, ownTenant, clientA, "AZURE_FEDERATED_TOKEN_FILE", w.mountToken(t, "https://"+ownAuthority))
	if _, err := w.controller(t, p, own); err != nil {
		t.Error(err)
	}
}

// The controller's own workload identity meets stale replicas of Entra too.
func TestControllerAtAStaleReplica(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	configure(t, tenantID, clientA, "AZURE_FEDERATED_TOKEN_FILE", w.tokenFile(t))
	w.Cloud.AddFault(cloudtest.Fault{Action: "token", Times: 1, Status: 401, Code: "invalid_client",
		Message: "AADSTS700213: No matching federated identity record found for presented assertion subject 'x'."})
	if _, err := w.controller(t, &azure.Provider{}); err != nil {
		t.Error(err)
	}
}

// The command-line tools run with AllowShellOut only.
func TestCommandLineTools(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.unhurried()
	bin := t.TempDir()
	script := "#!/bin/sh\ntouch " + filepath.Join(bin, "ran") +
		"\necho '{\"accessToken\":\"from-the-tool\",\"expires_on\":4102444800}'\n"
	if err := os.WriteFile(filepath.Join(bin, "az"), []byte(script), 0o700); err != nil { //nolint:gosec // it has to run
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	_, err := w.controller(t, &azure.Provider{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "no identity")
	if _, err := os.Stat(filepath.Join(bin, "ran")); err == nil {
		t.Error("the tool was run")
	}
	_, err = w.controller(t, &azure.Provider{}, auth.WithAllowShellOut())
	testenv.CheckError(t, err, auth.ErrUnavailable, "Azure CLI", "later than any token does")
	if _, err := os.Stat(filepath.Join(bin, "ran")); err != nil {
		t.Error("the tool was not run")
	}
}

// The answers of the metadata service during an update and under load are
// transient.
func TestMetadataServiceDuringAnUpdate(t *testing.T) {
	clearEnvironment(t)
	for status, reason := range map[int]provider.Reason{404: auth.ErrUnavailable, 408: auth.ErrUnavailable,
		410: auth.ErrUnavailable, 429: auth.ErrThrottled, 500: auth.ErrUnavailable} {
		for _, id := range []string{"", clientA} {
			t.Setenv("AZURE_CLIENT_ID", id)
			synctest.Test(t, func(t *testing.T) {
				client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					return respond(r, status, `{"error":"resource_unavailable","error_description":"IMDS is being updated"}`), nil
				})}
				_, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, auth.WithHTTPClient(client))
				testenv.CheckError(t, err, reason, "managed identity", "IMDS is being updated")
			})
		}
	}
}
