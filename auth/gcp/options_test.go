package gcp_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const service = "https://service-abc.a.run.app"

func allow(audiences ...string) auth.Option {
	return auth.WithPolicy(auth.Policy{Audiences: audiences})
}

// verifyIDToken does what a service behind Google's front end does.
func (w *environment) verifyIDToken(t *testing.T, token string) map[string]any {
	t.Helper()
	var keys jose.JSONWebKeySet
	_, body := read(t, w.Cloud.Client(), "https://accounts.google.com/openid/v1/jwks")
	if json.Unmarshal([]byte(body), &keys) != nil {
		t.Fatal(body)
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := parsed.Claims(&keys, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestIDToken(t *testing.T) {
	w := newEnvironment(t)
	token, err := auth.GetAccessToken(t.Context(), &gcp.Provider{},
		w.Options("tenant-a", "app", gcp.WithIDTokenAudience(service), allow(service))...)
	if err != nil {
		t.Fatal(err)
	}
	own, err := gcp.FromIDToken(token)
	if err != nil || own.Audience() != service || own.GetDuration() < 50*time.Minute ||
		own.ExpiresAt().Before(time.Now()) {
		t.Fatalf("got %v, %v", own, err)
	}
	if c := w.verifyIDToken(t, own.Value()); c["aud"] != service || c["email"] != email("tenant-a") ||
		c["iss"] != "https://accounts.google.com" {
		t.Errorf("claims %v", c)
	}
	_, err = w.get(t, "tenant-a", "app", gcp.WithIDTokenAudience(service))
	testenv.CheckError(t, err, auth.ErrDenied, "Policy.Audiences", service)
	_, err = w.get(t, "tenant-a", "direct", gcp.WithIDTokenAudience(service), allow(service))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "WithIDTokenAudience", gcp.ServiceAccountAnnotation)
	_, err = w.get(t, "tenant-a", "app", gcp.WithIDTokenAudience(service), gcp.WithLifetime(time.Minute), allow(service))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "WithLifetime")
	for _, text := range []string{own.String(), strings.TrimSpace(jsonOf(t, own))} {
		if strings.Contains(text, own.Value()) || !strings.Contains(text, "redacted") {
			t.Errorf("it prints as %s", text)
		}
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestIDTokenThatCannotBeUsed(t *testing.T) {
	w := newEnvironment(t)
	sign := func(claims map[string]any) string {
		token, err := w.Issuer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		return `{"token":"` + token + `"}`
	}
	soon := time.Now().Add(time.Hour).Unix()
	for name, body := range map[string]string{
		"no exp":           sign(map[string]any{"aud": service}),
		"expired":          sign(map[string]any{"aud": service, "exp": 1}),
		"for ever":         sign(map[string]any{"aud": service, "exp": 99999999999}),
		"another audience": sign(map[string]any{"aud": "https://other.example", "exp": soon}),
		"one more":         sign(map[string]any{"aud": []string{service, "https://other.example"}, "exp": soon}),
		"no JWT":           `{"token":"x"}`,
		"nothing":          `{}`,
		"HTML":             "<html>",
	} {
		end := w.Cloud.AddFault(cloudtest.Fault{Service: "iamcredentials", Body: body})
		_, err := w.get(t, "tenant-a", "app", gcp.WithIDTokenAudience(service), allow(service))
		t.Run(name, func(t *testing.T) { testenv.CheckError(t, err, auth.ErrUnavailable, "get an ID token") })
		end()
	}
}

func TestIDTokenOfTheController(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.inGKE()
	token, err := auth.GetAccessToken(t.Context(), &gcp.Provider{}, auth.WithHTTPClient(w.Cloud.Client()),
		gcp.WithIDTokenAudience(service), allow(service))
	if err != nil {
		t.Fatal(err)
	}
	own, err := gcp.FromIDToken(token)
	if err != nil {
		t.Fatal(err)
	}
	if c := w.verifyIDToken(t, own.Value()); c["aud"] != service || c["email"] != email("controller") {
		t.Errorf("claims %v", c)
	}
	_, err = w.controller(t, gcp.WithIDTokenAudience(service))
	testenv.CheckError(t, err, auth.ErrDenied, "Policy.Audiences")
}

func TestDelegates(t *testing.T) {
	w := newEnvironment(t)
	cloud := w.Cloud.GCP()
	cloud.SetServiceAccount(email("first"),
		cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{principal("tenant-a", "app")}})
	cloud.SetServiceAccount(email("second"),
		cloudtest.GCPServiceAccount{TokenCreators: []string{"serviceAccount:" + email("first")}})
	cloud.SetServiceAccount(email("tenant-a"),
		cloudtest.GCPServiceAccount{TokenCreators: []string{"serviceAccount:" + email("second")}})
	token, err := w.get(t, "tenant-a", "app", gcp.WithDelegates(email("first"), email("second")))
	if err != nil || token.ServiceAccountEmail() != email("tenant-a") {
		t.Fatalf("got %v, %v", token, err)
	}
	_, err = w.get(t, "tenant-a", "app", gcp.WithDelegates(email("second"), email("first")))
	testenv.CheckError(t, err, auth.ErrDenied, "chain of delegates", principal("tenant-a", "app"))
	_, err = w.get(t, "tenant-a", "app")
	testenv.CheckError(t, err, auth.ErrDenied)
	_, err = w.get(t, "tenant-a", "app", gcp.WithDelegates("jane@example.com"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "jane@example.com")
	_, err = w.get(t, "tenant-a", "app", gcp.WithDelegates(slices.Repeat([]string{email("first")}, 50)...))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "50 delegates")
	_, err = w.get(t, "tenant-a", "direct", gcp.WithDelegates(email("first")))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "WithDelegates", gcp.ServiceAccountAnnotation)
	clearEnvironment(t)
	_, err = w.controller(t, gcp.WithDelegates(email("first")))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "without a ServiceAccount")
}

func TestLifetime(t *testing.T) {
	w := newEnvironment(t)
	for d, want := range map[time.Duration]string{
		15 * time.Minute: "", time.Hour: "", 0: "0s", -time.Minute: "-1m0s", time.Millisecond: "1ms", 90*time.Second +
			1: "1m30",
		2 * time.Hour: "AllowExtendedLifetime", 13 * time.Hour: "12h",
	} {
		token, err := w.get(t, "tenant-a", "app", gcp.WithLifetime(d))
		if want != "" {
			testenv.CheckError(t, err, auth.ErrMisconfigured, want)
			continue
		}
		if err != nil || token.GetDuration() > d || token.GetDuration() < d-time.Minute {
			t.Errorf("asked for %s, got %v, %v", d, token, err)
		}
	}
	p := &gcp.Provider{AllowExtendedLifetime: true}
	_, err := w.getFrom(t, p, "tenant-a", "app", gcp.WithLifetime(12*time.Hour))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "allowServiceAccountCredentialLifetimeExtension")
	w.Cloud.GCP().SetServiceAccount(email("tenant-a"),
		cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{principal("tenant-a", "app")}, ExtendedLifetime: true})
	if token, err := w.getFrom(t, p, "tenant-a", "app", gcp.WithLifetime(12*time.Hour)); err != nil ||
		token.GetDuration() < 11*time.Hour {
		t.Errorf("got %v, %v", token, err)
	}
	_, err = w.get(t, "tenant-a", "direct", gcp.WithLifetime(time.Minute))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "WithLifetime", gcp.ServiceAccountAnnotation)
}
