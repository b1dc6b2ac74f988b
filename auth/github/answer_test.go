package github_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/github"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// answered is a server that answers everything alike.
type answered struct {
	status int
	body   []byte
}

func created(body string) answered { return answered{http.StatusCreated, []byte(body)} }

func (a answered) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body))}, nil
}

// What GitHub refuses, and what to do about it.
func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *environment, p *github.Provider)
		reason provider.Reason
		want   []string
	}{
		"another key": {func(_ *environment, p *github.Provider) {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				t.Fatal(err)
			}
			p.Sign = github.SignWith(key)
		}, auth.ErrMisconfigured, []string{`"Iv23liExample"`, "could not be decoded", "HTTP 401", "github.Provider.Sign"}},
		"a key that is not RSA": {func(_ *environment, p *github.Provider) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			p.Sign = github.SignWith(key)
		}, auth.ErrMisconfigured, []string{"use an RSA key"}},
		"another App": {func(_ *environment, p *github.Provider) {
			p.AppID = "1234"
		}, auth.ErrMisconfigured, []string{`"1234"`, "github.Provider.AppID"}},
		"uninstalled": {func(w *environment, _ *github.Provider) {
			w.github.SetInstallation(43, cloudtest.GitHubInstallation{})
		}, auth.ErrDenied,
			[]string{`installation 43 of the App "Iv23liExample"`, "HTTP 404", "install the App"}},
		"suspended": {func(w *environment, _ *github.Provider) {
			w.github.SetInstallation(43, cloudtest.GitHubInstallation{App: appID, Suspended: true})
		}, auth.ErrDenied, []string{"installation 43", "has been suspended", "HTTP 403"}},
		"a repository is missing": {func(_ *environment, p *github.Provider) { p.Grant = grantOf("missing", "contents") },
			auth.ErrDenied,
			[]string{`["missing"]`, "There is at least one repository", "HTTP 422"}},
		"a permission is missing": {func(_ *environment, p *github.Provider) { p.Grant = grantOf("app", "pull_requests") },
			auth.ErrDenied,
			[]string{`["pull_requests:read"]`, "permissions requested are not granted", "HTTP 422"}},
		"this clock is ahead": {func(w *environment, _ *github.Provider) {
			w.setClock(-3 * time.Minute)
		}, auth.ErrUnavailable,
			[]string{"the clock of this machine is off by about 3m0s", "synchronize", "HTTP 401"}},
		"this clock is behind": {func(w *environment, _ *github.Provider) {
			w.setClock(11 * time.Minute)
		}, auth.ErrUnavailable, []string{"off by about 11m0s"}},
		"a clock that is off a bit is not to blame": {func(w *environment, p *github.Provider) {
			w.setClock(5 * time.Minute)
			p.AppID = "1234"
		}, auth.ErrMisconfigured, []string{`refuses the JWT of the App "1234"`}},
		"an outage": {fault(cloudtest.Fault{Status: 502, Message: "<html>"}), auth.ErrUnavailable,
			[]string{"GitHub fails", "HTTP 502"}},
		"not GitHub": {fault(cloudtest.Fault{Status: 410, Message: "<html>"}), auth.ErrUnavailable,
			[]string{"not what GitHub answers", "github.Provider.URL"}},
		"another success": {fault(cloudtest.Fault{Body: `{"token":"ghs_x"}`}), auth.ErrUnavailable,
			[]string{"not what GitHub answers", "HTTP 200"}},
		"a cut connection": {fault(cloudtest.Fault{Cut: true}), auth.ErrUnavailable, []string{"api.github.com"}},
		"a redirect": {fault(cloudtest.Fault{Redirect: "https://evil.example/"}), auth.ErrUnavailable,
			[]string{"redirect"}},
		"an endless answer": {fault(cloudtest.Fault{Rewrite: func([]byte) []byte { return make([]byte, 2<<20) }}),
			auth.ErrUnavailable,
			[]string{"larger than"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some are tried three times
			w := newEnvironment(t)
			p := w.provider()
			tc.change(w, p)
			_, err := get(t.Context(), p, w.options("tenant-b")...)
			testenv.CheckError(t, err, tc.reason, tc.want...)
			var e *auth.Error
			if errors.As(err, &e) && e.StatusCode >= 401 && e.StatusCode <= 422 && e.StatusCode != 410 &&
				e.RequestID != "C0DE:1234:5678" {
				t.Errorf("the request ID is %q", e.RequestID)
			}
		})
	}
}

func fault(f cloudtest.Fault) func(*environment, *github.Provider) {
	return func(w *environment, _ *github.Provider) { w.Cloud.AddFault(f) }
}

func grantOf(repository, permission string) func(*corev1.ServiceAccount) (github.Grant, error) {
	return func(*corev1.ServiceAccount) (github.Grant, error) {
		return github.Grant{Installation: 43, Repositories: []string{repository},
			Permissions: map[string]string{permission: "read"}}, nil
	}
}

// setClock sets GitHub's clock.
func (w *environment) setClock(ahead time.Duration) {
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(ahead) })
}

// Primary and secondary limits answer 403 or 429, with the hint in one of two
// headers or in none.
func TestRateLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		status  int
		headers map[string]string
		reset   time.Duration // from now on by GitHub's clock
		reason  provider.Reason
		want    time.Duration
	}{
		"secondary": {status: 403, headers: map[string]string{"Retry-After": "90"}, reason: auth.ErrThrottled,
			want: 90 * time.Second},
		"secondary, 429": {status: 429, headers: map[string]string{"Retry-After": "90"}, reason: auth.ErrThrottled,
			want: 90 * time.Second},
		"secondary, at once": {status: 403, headers: map[string]string{"Retry-After": "0"}, reason: auth.ErrThrottled,
			want: time.Second},
		"primary": {status: 403, headers: map[string]string{"X-RateLimit-Remaining": "0"},
			reset: 20 * time.Minute, reason: auth.ErrThrottled, want: 20 * time.Minute},
		"primary, 429": {status: 429, headers: map[string]string{"X-RateLimit-Remaining": "0"},
			reset: 20 * time.Minute, reason: auth.ErrThrottled, want: 20 * time.Minute},
		"primary, reset is past": {status: 403, headers: map[string]string{"X-RateLimit-Remaining": "0"},
			reset: -time.Minute, reason: auth.ErrThrottled, want: time.Second},
		"primary, reset is years": {status: 403, headers: map[string]string{"X-RateLimit-Remaining": "0"},
			reset: 1e5 * time.Hour, reason: auth.ErrThrottled, want: time.Hour},
		"without a hint": {status: 429, reason: auth.ErrThrottled, want: time.Minute},
		"a refusal": {status: 403, headers: map[string]string{"X-RateLimit-Remaining": "4999"},
			reset: time.Minute, reason: auth.ErrDenied},
		"without a reset": {status: 403, headers: map[string]string{"X-RateLimit-Remaining": "0"},
			reason: auth.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // 429 is tried three times
			w := newEnvironment(t)
			w.setClock(5 * time.Minute)
			headers := http.Header{}
			for name, value := range tc.headers {
				headers.Set(name, value)
			}
			if tc.reset != 0 {
				headers.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(5*time.Minute+tc.reset).Unix(), 10))
			}
			w.github.SetRateLimit(tc.status, headers)
			_, err := get(t.Context(), w.provider(), w.options("tenant-a")...)
			testenv.CheckError(t, err, tc.reason, "API rate limit exceeded")
			var e *auth.Error
			if !errors.As(err, &e) || (e.Wait-tc.want).Abs() > 2*time.Second {
				t.Errorf("wait %s, want %s", e.Wait, tc.want)
			}
		})
	}
}

// A secondary limit without a hint is told from a suspension by its text alone.
// A token that was valid would else be dropped.
func TestSecondaryRateLimitWithoutAHint(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AddFault(cloudtest.Fault{Match: func(c cloudtest.Call) bool {
		return strings.Contains(c.Action, "access_tokens")
	},
		Status: http.StatusForbidden, Message: "You have exceeded a secondary rate limit."})
	_, err := get(t.Context(), w.provider(), w.options("tenant-a")...)
	var e *auth.Error
	if !errors.As(err, &e) || e.Reason != auth.ErrThrottled || e.Wait != time.Minute {
		t.Errorf("got %v", err)
	}
}

const goodAnswer = `{"token":"ghs_value","expires_at":"EXPIRY","permissions":{"contents":"read","metadata":"read"},` +
	`"repository_selection":"selected","repositories":[{"name":"app"}]}`

// GitHub describes each repository of a token in about 6 KB.
func TestTokenForHundredRepositories(t *testing.T) {
	var names, described []string
	for i := range 100 {
		name := fmt.Sprintf("repository-%d", i)
		names = append(names, name)
		described = append(described, `{"name":"`+name+`","description":"`+strings.Repeat("x", 6000)+`"}`)
	}
	body := strings.Replace(goodAnswer, "EXPIRY", time.Now().Add(time.Hour).UTC().Format(time.RFC3339), 1)
	body = strings.Replace(body, `{"name":"app"}`, strings.Join(described, ","), 1)
	p := newEnvironment(t).granting(github.Grant{Installation: 42, Repositories: names,
		Permissions: map[string]string{"contents": "read"}})
	if _, err := p.NewTokenForServiceAccount(t.Context(), "", testenv.ServiceAccount("tenant-a", "app"),
		&provider.Options{HTTPClient: &http.Client{Transport: created(body)}}); err != nil {
		t.Error(err)
	}
}

// An answer that gives more than was asked for, or does not tell, gives
// nothing.
func TestAnswers(t *testing.T) {
	w := newEnvironment(t)
	replace := func(old, with string) string { return strings.Replace(goodAnswer, old, with, 1) }
	long := "ghs_" + "1234_eyJhbGciOiJSUzI1NiJ9." + strings.Repeat("x", 1000) + ".sig"
	for name, tc := range map[string]struct {
		body   string
		reason provider.Reason
		want   string
	}{
		"good":                    {goodAnswer, "", ""},
		"a long token with a JWT": {replace("ghs_value", long), "", ""},
		"names in another case":   {replace(`"app"`, `"App"`), "", ""},
		"unknown members":         {replace(`"token"`, `"Token":"other","token"`), "", ""},
		"less than asked":         {replace(`"contents":"read",`, ""), "", ""},
		"another repository": {replace(`{"name":"app"}`, `{"name":"app"},{"name":"secret"}`), auth.ErrDenied,
			`"secret", granted are ["app"]`},
		"a repository without a name": {replace(`{"name":"app"}`, `{"Name":"app"}`), auth.ErrDenied, `""`},
		"all repositories":            {replace("selected", "all"), auth.ErrDenied, "all repositories"},
		"repositories not told":       {replace(`[{"name":"app"}]`, `[]`), auth.ErrUnavailable, "repositories"},
		"a higher level": {replace(`"contents":"read"`, `"contents":"write"`), auth.ErrDenied,
			`"contents:write", granted are ["contents:read"]`},
		"another permission": {replace(`"contents"`, `"issues"`), auth.ErrDenied, `"issues:read"`},
		"metadata to write": {replace(`"metadata":"read"`, `"metadata":"write"`), auth.ErrDenied,
			`"metadata:write"`},
		"an unknown level": {replace(`"contents":"read"`, `"contents":"owner"`), auth.ErrDenied,
			`"contents:owner"`},
		"permissions not told": {replace(`{"contents":"read","metadata":"read"}`, "null"), auth.ErrUnavailable,
			"permissions"},
		"permissions malformed":     {replace(`"contents":"read"`, `"contents":1`), auth.ErrUnavailable, "permissions"},
		"no token":                  {replace("ghs_value", ""), auth.ErrUnavailable, "no token"},
		"a token with a line break": {replace("ghs_value", `ghs_\nvalue`), auth.ErrUnavailable, "invalid characters"},
		"expired": {replace("EXPIRY", "2020-01-01T00:00:00Z"), auth.ErrUnavailable,
			"2020-01-01T00:00:00Z, and the clock"},
		"expiry malformed": {replace("EXPIRY", "tomorrow"), auth.ErrUnavailable, `"tomorrow"`},
		"not an object":    {"[]", auth.ErrUnavailable, "JSON"},
		"nothing":          {"", auth.ErrUnavailable, "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(tc.body, "EXPIRY", time.Now().Add(time.Hour).UTC().Format(time.RFC3339), 1)
			opts := &provider.Options{HTTPClient: &http.Client{Transport: created(body)}}
			token, err := w.provider().NewTokenForServiceAccount(t.Context(), "", testenv.ServiceAccount("tenant-b", "app"),
				opts)
			if tc.reason == "" {
				if err != nil || token.GetDuration() <= 0 {
					t.Errorf("got %v, %v, want a token", token, err)
				}
				return
			}
			if token != nil {
				t.Errorf("got %v", token)
			}
			testenv.CheckError(t, err, tc.reason, tc.want)
		})
	}
}

// A server that answers the JWT, or quotes it in an error, gets it into no
// token and no message.
func TestServerRepeatsTheJWT(t *testing.T) {
	w := newEnvironment(t)
	for _, status := range []int{201, 401, 403, 422, 500} {
		var jwt string
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			jwt = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			body := strings.NewReplacer("ghs_value", jwt, "EXPIRY",
				time.Now().Add(time.Hour).UTC().Format(time.RFC3339)).Replace(goodAnswer)
			if status != 201 {
				body = `{"message":"you sent ` + jwt + ` and token ` + strings.Split(jwt, ".")[2] + `"}`
			}
			return answered{status, []byte(body)}.RoundTrip(r)
		})}
		token, err := w.provider().NewTokenForServiceAccount(t.Context(), "", testenv.ServiceAccount("tenant-b", "app"),
			&provider.Options{HTTPClient: client})
		if err == nil || token != nil {
			t.Fatalf("got %v", token)
		}
		for _, part := range append(strings.Split(jwt, "."), jwt) {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%d: the message holds a part of the JWT: %v", status, err)
			}
		}
	}
}

// Whatever answers, there is either a whole token that does no more than was
// asked, or an error fit for a condition.
func FuzzAnswer(f *testing.F) {
	f.Add(201, []byte(goodAnswer))
	f.Add(201, []byte(strings.Replace(goodAnswer, `[{"name":"app"}]`, `[null,{"name":1}]`, 1)))
	f.Add(422, []byte(`{"message":"no\r\n\u001b[31m"}`))
	f.Add(403, []byte("<html>"))
	w := newEnvironment(f)
	p := w.provider()
	p.Sign = func(context.Context, *corev1.ServiceAccount, []byte) ([]byte, error) {
		return []byte("canary-signature"), nil
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 400 || status > 499 || status == 429 { // else it is tried again
			status = http.StatusCreated
		}
		body = bytes.Replace(body, []byte("EXPIRY"), []byte(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), 1)
		opts := &provider.Options{HTTPClient: &http.Client{Transport: answered{status, body}}}
		got, err := p.NewTokenForServiceAccount(t.Context(), "", testenv.ServiceAccount("tenant-b", "app"), opts)
		if (err == nil) == (got == nil) {
			t.Fatalf("got %v with error %v", got, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "canary-signature") || strings.ContainsAny(err.Error(), "\n\r\x1b") ||
				len(err.Error()) > 2500 {
				t.Errorf("the message is not fit: %q", err)
			}
			return
		}
		token, err := github.FromToken(got)
		if err != nil || token.Reveal() == "" || strings.ContainsAny(token.Reveal(), " \r\n\t") || token.GetDuration() <= 0 ||
			token.GetDuration() > time.Hour ||
			status != http.StatusCreated || bytes.Contains(body, []byte("admin")) && bytes.Contains(body,
			[]byte("\"contents\":\"admin\"")) {
			t.Errorf("%v of %q", token, body)
		}
	})
}

// The key of a tenant's own cloud, or of none.
func TestSigning(t *testing.T) {
	w := newEnvironment(t)
	denied := &auth.Error{Provider: "aws", Reason: auth.ErrDenied, Message: "the role does not trust it"}
	for name, tc := range map[string]struct {
		sign   github.SignFunc
		reason provider.Reason
		want   string
	}{
		"no key":               {github.SignWith(nil), auth.ErrUnavailable, "panic"},
		"refused by the cloud": {signing(denied), auth.ErrDenied, "does not trust"},
		"a KMS that fails": {signing(errors.New("timeout eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2lnbmF0dXJl")),
			auth.ErrUnavailable, "cannot be signed: timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.provider()
			p.Sign = tc.sign
			_, err := get(t.Context(), p, w.options("tenant-a")...)
			testenv.CheckError(t, err, tc.reason, tc.want)
		})
	}
	testenv.ExpectNone(t, w.calls())
}

func signing(err error) github.SignFunc {
	return func(context.Context, *corev1.ServiceAccount, []byte) ([]byte, error) { return nil, err }
}
