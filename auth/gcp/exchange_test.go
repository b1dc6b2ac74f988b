package gcp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestAnnotationsThatAreMalformed(t *testing.T) {
	const id = gcp.WorkloadIdentityProviderAnnotation
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		annotation, value, want string
	}{
		"empty": {id, "", "empty"},
		"project ID": {id, strings.Replace(poolProvider, number, "my-project", 1),
			`"my-project" is the project's ID; give its number`},
		"no project":   {id, strings.Replace(poolProvider, number, "", 1), "has to be a number"},
		"leading zero": {id, strings.Replace(poolProvider, number, "0123", 1), "number"},
		"pool only":    {id, pool, "names a pool; add /providers/<provider>"},
		"a subject":    {id, pool + "/subject/x", "names a subject"},
		"unexpanded":   {id, strings.Replace(poolProvider, number, "${NUMBER}", 1), "${NUMBER}"},
		"GKE's pool":   {id, "project.svc.id.goog", "pool of a GKE cluster"},
		"provider of GKE's": {id, strings.Replace(poolProvider, "cluster-1", "project.svc.id.goog", 1),
			"pool of a GKE cluster"},
		"a principal":       {id, principal("a", "b"), "IAM policy"},
		"a location":        {id, strings.Replace(poolProvider, "global", "europe-west1", 1), "global"},
		"another universe":  {id, "//iam.s3nsapis.fr/" + poolProvider, "iam.googleapis.com"},
		"another host":      {id, "https://evil.example/" + poolProvider, "evil.example"},
		"look-alike host":   {id, "//iam.googleapis.com.evil.example/" + poolProvider, "evil.example"},
		"http":              {id, "http://iam.googleapis.com/" + poolProvider, "scheme"},
		"more after it":     {id, poolProvider + "/x", "after the provider's ID"},
		"final slash":       {id, poolProvider + "/", "after the provider's ID"},
		"upper case":        {id, strings.Replace(poolProvider, "east", "East", 1), "lower-case"},
		"dots":              {id, strings.Replace(poolProvider, "east", "../..", 1), "after the provider's ID"},
		"query":             {id, poolProvider + "?x=y", "lower-case"},
		"huge":              {id, strings.Repeat("x", 200_000), "xxx"},
		"escape":            {id, "projects/\x1b[31m\n", `\x1b`},
		"short pool":        {id, strings.Replace(poolProvider, "cluster-1", "abc", 1), "4 to 32"},
		"no e-mail":         {gcp.ServiceAccountAnnotation, "", "empty"},
		"e-mail of a user":  {gcp.ServiceAccountAnnotation, "jane@example.com", "not to a service account"},
		"member":            {gcp.ServiceAccountAnnotation, "serviceAccount:" + email("a"), "member of an IAM policy"},
		"resource name":     {gcp.ServiceAccountAnnotation, "projects/p/serviceAccounts/" + email("a"), "resource name"},
		"look-alike e-mail": {gcp.ServiceAccountAnnotation, email("a") + ".evil.example", "not to a service account"},
		"two at signs":      {gcp.ServiceAccountAnnotation, "a@" + email("b"), `"b@project"`},
		"path": {gcp.ServiceAccountAnnotation, "a/../../b@project.iam.gserviceaccount.com",
			"not an e-mail address"},
		"method":            {gcp.ServiceAccountAnnotation, email("a") + ":signJwt", "not an e-mail address"},
		"no project there":  {gcp.ServiceAccountAnnotation, "a@iam.gserviceaccount.com", "project is missing"},
		"upper-case e-mail": {gcp.ServiceAccountAnnotation, "App@project.iam.gserviceaccount.com", "lower-case"},
		"upper-case domain": {gcp.ServiceAccountAnnotation, "app@project.IAM.gserviceaccount.com", "lower case"},
		"compute without no.": {gcp.ServiceAccountAnnotation, "project-compute@developer.gserviceaccount.com",
			"<project number>-compute"},
		"percent": {gcp.ServiceAccountAnnotation, "a%2fb@project.iam.gserviceaccount.com", "lower-case"},
	} {
		annotations := []string{tc.annotation, tc.value}
		if tc.annotation == gcp.ServiceAccountAnnotation {
			annotations = append(annotations, id, poolProvider)
		}
		if err := w.Client.Create(t.Context(), testenv.ServiceAccount("malformed", "app", annotations...)); err != nil {
			t.Fatal(err)
		}
		_, err := w.get(t, "malformed", "app")
		t.Run(name, func(t *testing.T) {
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.annotation, tc.want, `"malformed/app"`)
			if n := w.Requests(); n != 0 || len(err.Error()) > 1200 {
				t.Errorf("%d calls, %d bytes of error", n, len(err.Error()))
			}
		})
		if err := w.Client.Delete(t.Context(), testenv.ServiceAccount("malformed", "app")); err != nil {
			t.Fatal(err)
		}
	}
}

// Prefixes that people copy along are no mistake.
func TestProviderWithAPrefix(t *testing.T) {
	for _, prefix := range []string{"//iam.googleapis.com/", "https://iam.googleapis.com/"} {
		w := newEnvironment(t, testenv.ServiceAccount("tenant-a", "prefixed", gcp.WorkloadIdentityProviderAnnotation,
			prefix+poolProvider))
		if _, err := w.get(t, "tenant-a", "prefixed"); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// Each refusal of the token service has a reason and says what to do (facts G1
// to G9).
func TestExchangeErrors(t *testing.T) {
	other, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://other.example"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*cloudtest.WorkloadIdentityProvider)
		reason provider.Reason
		want   []string
	}{
		"disabled": {func(p *cloudtest.WorkloadIdentityProvider) { p.Disabled = true }, auth.ErrMisconfigured,
			[]string{"invalid_target", "given by its number"}},
		"other audiences": {func(p *cloudtest.WorkloadIdentityProvider) {
			p.AllowedAudiences = []string{"x"}
		}, auth.ErrDenied,
			[]string{"invalid_grant", `add "//iam.googleapis.com/` + poolProvider}},
		"other issuer": {func(p *cloudtest.WorkloadIdentityProvider) { p.Issuer = "https://issuer.example/" }, auth.ErrDenied,
			[]string{"https://issuer.example/", "letter by letter"}},
		"issuer not reachable": {func(p *cloudtest.WorkloadIdentityProvider) {
			p.Fetch = other.HTTPClient()
		}, auth.ErrUnavailable,
			[]string{"connecting to the given credential's issuer", "JWKS"}},
		"keys of another": {func(p *cloudtest.WorkloadIdentityProvider) {
			p.JWKS = []byte(`{"keys":[]}`)
		}, auth.ErrUnavailable, []string{"connecting to the given credential's issuer"}},
		"condition": {func(p *cloudtest.WorkloadIdentityProvider) {
			p.Condition = func(map[string]any) bool { return false }
		}, auth.ErrDenied,
			[]string{"unauthorized_client", "attribute condition"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			config := cloudtest.WorkloadIdentityProvider{Issuer: w.Issuer.URL(), Fetch: w.Issuer.HTTPClient()}
			tc.change(&config)
			w.Cloud.GCP().SetWorkloadIdentityProvider(poolProvider, config)
			_, err := w.get(t, "tenant-a", "app")
			testenv.CheckError(t, err, tc.reason, append(tc.want, "gcp: ", "exchange the ServiceAccount token", "HTTP 400")...)
		})
	}
}

func TestExchangeErrorsOfFaults(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"bad audience": {cloudtest.Fault{Status: 400, Code: "invalid_request", Message: `Invalid value for "audience".`},
			auth.ErrMisconfigured, "universe"},
		"signature": {cloudtest.Fault{Status: 400, Code: "invalid_grant",
			Message: "Unable to verify the ID Token signature."}, auth.ErrDenied, "current JWKS"},
		"stale": {cloudtest.Fault{Status: 400, Code: "invalid_grant",
			Message: "ID Token issued at 1 is stale to sign-in."}, auth.ErrUnavailable, "clock"},
		"long subject": {cloudtest.Fault{Status: 400, Code: "invalid_grant",
			Message: "The size of mapped attribute exceeds the 127 bytes limit."}, auth.ErrMisconfigured, "shorten"},
		"new in 2030": {cloudtest.Fault{Status: 400, Code: "invalid_moon", Message: "waning"}, auth.ErrDenied, "waning"},
		"scope": {cloudtest.Fault{Status: 400, Code: "invalid_scope", Message: "no"}, auth.ErrMisconfigured,
			"WithScopes"},
		"internal": {cloudtest.Fault{Status: 500, Message: "Internal error encountered."}, auth.ErrUnavailable,
			"HTTP 500"},
		"throttled": {cloudtest.Fault{Status: 429, Message: "Quota exceeded", RetryAfter: "42"}, auth.ErrThrottled,
			"HTTP 429"},
		"HTML": {cloudtest.Fault{Body: "<!DOCTYPE html><html>proxy login</html>"}, auth.ErrUnavailable,
			"JSON object"},
		"empty object": {cloudtest.Fault{Body: "{}"}, auth.ErrUnavailable, "holds no token"},
		"no expiry":    {cloudtest.Fault{Body: `{"access_token":"x"}`}, auth.ErrUnavailable, "expiry is missing"},
		"expired":      {cloudtest.Fault{Body: `{"access_token":"x","expires_in":-1}`}, auth.ErrUnavailable, "expired at"},
		"for ever": {cloudtest.Fault{Body: `{"access_token":"x","expires_in":99999999}`}, auth.ErrUnavailable,
			"later than any"},
		"beyond time": {cloudtest.Fault{Body: `{"access_token":"x","expires_in":9223372036854775807}`},
			auth.ErrUnavailable, "expiry is missing"},
		"fraction": {cloudtest.Fault{Body: `{"access_token":"x","expires_in":1e400}`}, auth.ErrUnavailable, ""},
		"wrong type": {cloudtest.Fault{Body: `{"access_token":"x","expires_in":3600,"token_type":"MAC"}`},
			auth.ErrUnavailable, "MAC"},
		"header in token": {cloudtest.Fault{Body: `{"access_token":"x\r\nX: y","expires_in":3600}`}, auth.ErrUnavailable,
			"invalid characters"},
		"redirect": {cloudtest.Fault{Redirect: "https://evil.example/token"}, auth.ErrUnavailable, "redirect"},
		"cut":      {cloudtest.Fault{Cut: true}, auth.ErrUnavailable, "no answer"},
		"10 MB": {cloudtest.Fault{Rewrite: func([]byte) []byte {
			return make([]byte, 10<<20)
		}}, auth.ErrUnavailable, "larger than"},
		"quotes token": {cloudtest.Fault{Rewrite: func(b []byte) []byte {
			return []byte(strings.Replace(string(b), "ya29", "\\u000aya29", 1))
		}}, auth.ErrUnavailable, "invalid characters"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.fault.Service = "gcp-sts"
			defer w.Cloud.AddFault(tc.fault)()
			_, err := w.get(t, "tenant-a", "direct")
			testenv.CheckError(t, err, tc.reason, tc.want)
			if tc.fault.RetryAfter != "" && auth.RetryAfter(err) != 42*time.Second {
				t.Errorf("RetryAfter is %s", auth.RetryAfter(err))
			}
			for _, call := range w.Cloud.Log() {
				if call.Host != "sts.googleapis.com" {
					t.Errorf("asked %q", call.Host)
				}
			}
		})
	}
}

// The token that was just exchanged is not accepted: clocks differ, or a region
// has not heard of it. The next exchange tells.
func TestFederatedTokenThatIsNotAccepted(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AddFault(cloudtest.Fault{Service: "iamcredentials", Status: 401, Code: "UNAUTHENTICATED",
		Message: "Request had invalid authentication credentials."})
	_, err := w.get(t, "tenant-a", "app")
	testenv.CheckError(t, err, auth.ErrUnavailable, "HTTP 401", "clocks")
}

func TestTransientErrorsAreTriedAgain(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AddFault(cloudtest.Fault{Service: "gcp-sts", Status: 503, Times: 1})
	w.Cloud.AddFault(cloudtest.Fault{Service: "gcp-sts", Status: 400, Code: "invalid_grant",
		Message: "Error connecting to the given credential's issuer.", Times: 1})
	w.Cloud.AddFault(cloudtest.Fault{Service: "iamcredentials", Status: 500, Times: 1})
	w.Cloud.AddFault(cloudtest.Fault{Service: "iamcredentials", Cut: true, Times: 1})
	if _, err := w.get(t, "tenant-a", "app"); err != nil {
		t.Error(err)
	}
	if sts, iam := w.Cloud.Calls("gcp-sts", ""), w.Cloud.Calls("iamcredentials", ""); sts != 3 || iam != 3 {
		t.Errorf("%d and %d calls", sts, iam)
	}
}

// The token service answers with an internal error to a token that ends at
// once, so it is not sent (facts G13).
func TestSubjectTokenAboutToExpire(t *testing.T) {
	w := newEnvironment(t)
	sa := testenv.ServiceAccount("tenant-a", "direct", gcp.WorkloadIdentityProviderAnnotation, poolProvider)
	for lifetime, ok := range map[time.Duration]bool{50 * time.Second: false, 70 * time.Second: true} {
		token, err := w.Issuer.Sign(w.Issuer.Claims(sa, []string{"//iam.googleapis.com/" + poolProvider}, lifetime))
		if err != nil {
			t.Fatal(err)
		}
		before := w.Cloud.Calls("", "")
		_, err = auth.GetAccessToken(t.Context(), &gcp.Provider{}, auth.WithHTTPClient(w.Cloud.Client()),
			auth.WithSubjectToken(auth.NewStaticTokenSource(token), *sa))
		if ok != (err == nil) || ok != (w.Cloud.Calls("", "") > before) {
			t.Errorf("with %s left: %v, %d calls", lifetime, err, w.Cloud.Calls("", "")-before)
		}
		if !ok {
			testenv.CheckError(t, err, auth.ErrUnavailable, "less than 1m0s left")
		}
	}
	for name, token := range map[string]string{"nothing": "", "no JWT": "ya29.opaque",
		"no exp": "eyJhbGciOiJub25lIn0.e30.x"} {
		if _, err := (&gcp.Provider{}).NewTokenForServiceAccount(t.Context(), token, sa,
			&provider.Options{HTTPClient: w.Cloud.Client()}); err == nil {
			t.Errorf("%s was exchanged", name)
		}
	}
}

func TestImpersonationErrors(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-a", "gone", gcp.WorkloadIdentityProviderAnnotation, poolProvider,
		gcp.ServiceAccountAnnotation, email("gone")))
	_, err := w.get(t, "tenant-a", "gone")
	testenv.CheckError(t, err, auth.ErrMisconfigured, "Gaia id not found", gcp.ServiceAccountAnnotation, "NOT_FOUND")
	for name, tc := range map[string]struct {
		body   string
		status int
		reason provider.Reason
		want   string
	}{
		"API off": {
			`{"error":{"code":403,"message":"IAM Service Account Credentials API has not been used in project 1 before or it is disabled.","status":"PERMISSION_DENIED",` +
				`"details":[{"@type":"type.googleapis.com/google.rpc.Help"},{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SERVICE_DISABLED","domain":"googleapis.com"}]}}`,
			403, auth.ErrMisconfigured, "gcloud services enable"},
		"lifetime": {
			`{"error":{"code":400,"message":"can not have lifetimes of more than 1 hour.","status":"INVALID_ARGUMENT"}}`, 400,
			auth.ErrMisconfigured, "allowServiceAccountCredentialLifetimeExtension"},
		"quota": {`{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}`, 429,
			auth.ErrThrottled, ""},
		"HTML of a proxy": {"<html>403</html>", 403, auth.ErrUnavailable, "not one of Google"},
		"nothing":         {"", 404, auth.ErrUnavailable, ""},
		"error of a list": {`{"error":[1]}`, 400, auth.ErrUnavailable, ""},
		"no reason":       {`{"error":{"code":403,"status":"PERMISSION_DENIED"}}`, 403, auth.ErrDenied, "no reason"},
		"token that ended": {`{"accessToken":"x","expireTime":"2001-01-01T00:00:00Z"}`, 200, auth.ErrUnavailable,
			"expired at"},
		"bad time": {`{"accessToken":"x","expireTime":"tomorrow"}`, 200, auth.ErrUnavailable, "JSON object"},
		"no time":  {`{"accessToken":"x"}`, 200, auth.ErrUnavailable, "expiry is missing"},
		"no token": {`{"expireTime":"2099-01-01T00:00:00Z"}`, 200, auth.ErrUnavailable, "holds no token"},
		"far away": {`{"accessToken":"x","expireTime":"2999-01-01T00:00:00Z"}`, 200, auth.ErrUnavailable,
			"later than any"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := w.Cloud.Client().Transport
			client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host != "iamcredentials.googleapis.com" {
					return cloud.RoundTrip(r)
				}
				return answer(tc.status, tc.body), nil
			})}
			_, err := w.get(t, "tenant-a", "app", auth.WithHTTPClient(client))
			testenv.CheckError(t, err, tc.reason, tc.want)
		})
	}
}

// Transient answers drop no credential, whatever their status.
func TestTransientAnswers(t *testing.T) {
	w := newEnvironment(t)
	for body, tc := range map[string]struct {
		status int
		reason provider.Reason
	}{
		`{"error":{"code":408,"status":"DEADLINE_EXCEEDED","message":"x"}}`: {408, auth.ErrUnavailable},
		`{"error":{"code":408,"status":"NEW_IN_2030","message":"x"}}`:       {408, auth.ErrUnavailable},
		`{"error":"too_early"}`: {425, auth.ErrUnavailable},
		`{"error":{"code":409,"status":"ABORTED","message":"try again"}}`:                {409, auth.ErrUnavailable},
		`{"error":{"code":499,"status":"CANCELLED","message":"x"}}`:                      {499, auth.ErrUnavailable},
		`{"error":"temporarily_unavailable"}`:                                            {400, auth.ErrUnavailable},
		`{"error":"server_error"}`:                                                       {400, auth.ErrUnavailable},
		`{"error":{"code":400,"status":"UNAVAILABLE","message":"x"}}`:                    {400, auth.ErrUnavailable},
		`{"error":{"code":429,"status":"NEW_IN_2030","message":"x"}}`:                    {429, auth.ErrThrottled},
		`{"error":{"code":403,"status":"RESOURCE_EXHAUSTED","message":"x"}}`:             {403, auth.ErrThrottled},
		`{"error":{"code":403,"message":"x","errors":[{"reason":"rateLimitExceeded"}]}}`: {403, auth.ErrThrottled},
		`{"error":{"code":403,"status":"PERMISSION_DENIED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED"}]}}`: {403, auth.ErrThrottled},
		`{"error":{"code":403,"status":"PERMISSION_DENIED","errors":[{"reason":"forbidden"}]}}`:                                                               {403, auth.ErrDenied},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				return answer(tc.status, body), nil
			})}
			_, err := w.get(t, "tenant-a", "app", auth.WithHTTPClient(client))
			testenv.CheckError(t, err, tc.reason, fmt.Sprintf("HTTP %d", tc.status))
		})
	}
}

func TestUniverse(t *testing.T) {
	const universe = "s3nsapis.fr"
	w := &environment{testenv.New(t, testenv.ServiceAccount("tenant-a", "app", gcp.WorkloadIdentityProviderAnnotation,
		"//iam.s3nsapis.fr/"+poolProvider, gcp.ServiceAccountAnnotation, "app@project.s3ns.iam.gserviceaccount.com"))}
	w.Cloud.GCP().SetUniverseDomain(universe)
	w.trust(poolProvider)
	w.Cloud.GCP().SetServiceAccount("app@project.s3ns.iam.gserviceaccount.com", cloudtest.GCPServiceAccount{
		WorkloadIdentityUsers: []string{strings.Replace(principal("tenant-a", "app"), "googleapis.com", universe, 1)}})
	p := &gcp.Provider{UniverseDomain: universe}
	if _, err := w.getFrom(t, p, "tenant-a", "app"); err != nil {
		t.Fatal(err)
	}
	for i, host := range []string{"sts." + universe, "iamcredentials." + universe} {
		if got := w.Cloud.Log()[i].Host; got != host {
			t.Errorf("call %d goes to %q", i, got)
		}
	}
	for _, bad := range []string{"com", "evil.example/", "evil.example:443", "user@evil.example", "evil.example#",
		"10.0.0.1", "Googleapis.com", "a..b", ".a.b", "a.b.", " a.b", "a.b?", strings.Repeat("a.", 200) + "b"} {
		_, err := w.getFrom(t, &gcp.Provider{UniverseDomain: bad}, "tenant-a", "app")
		testenv.CheckError(t, err, auth.ErrMisconfigured, "universe domain")
	}
}

func TestSTSEndpoint(t *testing.T) {
	w := newEnvironment(t)
	for endpoint, host := range map[string]string{
		"https://sts.googleapis.com":                       "sts.googleapis.com",
		"https://sts.googleapis.com/":                      "sts.googleapis.com",
		"https://sts.googleapis.com/v1/token":              "sts.googleapis.com",
		"https://sts.googleapis.com:443":                   "sts.googleapis.com",
		"https://sts.europe-west1.rep.googleapis.com":      "sts.europe-west1.rep.googleapis.com",
		"https://sts-mine.p.googleapis.com":                "sts-mine.p.googleapis.com",
		"http://sts.googleapis.com":                        "",
		"https://sts.googleapis.com.evil.example":          "",
		"https://evilsts.googleapis.com":                   "",
		"https://sts.googleapis.com@evil.example":          "",
		"https://sts.googleapis.com:8443":                  "",
		"https://sts.googleapis.com/v2/token":              "",
		"https://sts.googleapis.com?x=y":                   "",
		"https://sts.googleapis.com#x":                     "",
		"https://sts.googleapis.com\\.evil.example":        "",
		"https://sts.evil.example.rep.googleapis.com":      "",
		"https://storage.googleapis.com":                   "",
		"https://sts.p.googleapis.com":                     "",
		"https://evil.example/https://sts.googleapis.com/": "",
		"//sts.googleapis.com":                             "",
	} {
		before := len(w.Cloud.Log())
		_, err := w.get(t, "tenant-a", "direct", auth.WithSTSEndpoint(endpoint))
		if host == "" {
			testenv.CheckError(t, err, auth.ErrMisconfigured, "STS endpoint")
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", endpoint, err)
		} else if calls := w.Cloud.Log()[before:]; len(calls) != 1 || calls[0].Host != host {
			t.Errorf("%q: made %+v, want one request to %s", endpoint, calls, host)
		}
	}
	p := &gcp.Provider{AllowedSTSHosts: []string{"sts.corp.example:8443"}}
	if err := p.ValidateOptions(&provider.Options{STSEndpoint: "https://sts.corp.example:8443"}); err != nil {
		t.Error(err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string) *http.Response {
	w := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1}
	w.Body = http.NoBody
	if body != "" {
		w.Body = readCloser{strings.NewReader(body)}
	}
	return w
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// A service could use a token with the audience of Google at Google.
func TestAudienceIsTheServices(t *testing.T) {
	const own = "sts.corp.example:8443"
	p := &gcp.Provider{AllowedSTSHosts: []string{own, "sts.other.example", "sts.googleapis.com"},
		STSAudiences: map[string]string{"sts.other.example": "other", "sts.googleapis.com": "wrong"}}
	sa := testenv.ServiceAccount("tenant-a", "app", gcp.WorkloadIdentityProviderAnnotation, poolProvider)
	for endpoint, want := range map[string]string{
		"":                                     "//iam.googleapis.com/" + poolProvider,
		"https://" + own:                       "https://" + own,
		"https://" + own + "/v1/token":         "https://" + own,
		"https://sts.other.example":            "other",
		"https://sts.googleapis.com":           "//iam.googleapis.com/" + poolProvider,
		"https://sts-private.p.googleapis.com": "//iam.googleapis.com/" + poolProvider,
	} {
		opts := &provider.Options{STSEndpoint: endpoint}
		if err := p.ValidateOptions(opts); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
		if got, err := p.GetAudiences(t.Context(), sa, opts); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%q: got %q, %v", endpoint, got, err)
		}
	}
}

func TestSubjectThatIsTooLong(t *testing.T) {
	for _, code := range []string{"invalid_request", "invalid_grant"} {
		for name, text := range map[string]string{
			"2024": "The size of mapped attribute exceeds the 127 bytes limit.",
			"2026": "The size of mapped attribute google.subject exceeds the 127 bytes limit. Either modify your attribute mapping.",
		} {
			t.Run(code+", "+name, func(t *testing.T) {
				w := newEnvironment(t)
				w.Cloud.AddFault(cloudtest.Fault{Service: "gcp-sts", Status: 400, Code: code, Message: text})
				_, err := w.get(t, "tenant-a", "app")
				testenv.CheckError(t, err, auth.ErrMisconfigured, "map a shorter attribute")
			})
		}
	}
}
