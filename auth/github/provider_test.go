package github_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/github"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const appID = "Iv23liExample"

var appKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// environment is a cluster with tenants, and GitHub with an App that two
// organizations have installed.
type environment struct {
	*testenv.Environment
	github *cloudtest.GitHub
	key    *rsa.PrivateKey
}

func newEnvironment(t testing.TB) *environment {
	t.Helper()
	key, err := appKey()
	if err != nil {
		t.Fatal(err)
	}
	w := &environment{Environment: testenv.New(t, testenv.ServiceAccount("tenant-a", "app"),
		testenv.ServiceAccount("tenant-b", "app"), testenv.ServiceAccount("tenant-c", "app"),
		testenv.ServiceAccount("stranger", "app")), key: key}
	w.github = w.addGitHub("github.com")
	return w
}

func (w *environment) addGitHub(host string) *cloudtest.GitHub {
	g := cloudtest.NewGitHub(w.Cloud, host)
	g.AddApp(appID, &w.key.PublicKey)
	g.SetInstallation(42, cloudtest.GitHubInstallation{App: appID, Owner: "org-a", Repositories: []string{"app", "infra",
		"secret"},
		Permissions: map[string]string{"contents": "write", "issues": "read"}})
	g.SetInstallation(43, cloudtest.GitHubInstallation{App: appID, Owner: "org-b", Repositories: []string{"app"},
		Permissions: map[string]string{"contents": "read"}})
	return g
}

// grants returns the controller's grants. The ServiceAccount stranger has none.
func grants() map[string]github.Grant {
	return map[string]github.Grant{
		"tenant-a": {Installation: 42, Repositories: []string{"infra", "app"},
			Permissions: map[string]string{"contents": "write", "issues": "read"}},
		"tenant-b": {Installation: 43, Repositories: []string{"app"}, Permissions: map[string]string{"contents": "read"}},
		"tenant-c": {Installation: 42, AllRepositories: true, Permissions: map[string]string{"contents": "read"}},
	}
}

func grantTo(sa *corev1.ServiceAccount) (github.Grant, error) { return grants()[sa.Namespace], nil }

func (w *environment) provider() *github.Provider {
	return &github.Provider{AppID: appID, Sign: github.SignWith(w.key), Grant: grantTo}
}

// granting returns a provider with one grant for all.
func (w *environment) granting(g github.Grant) *github.Provider {
	p := w.provider()
	p.Grant = func(*corev1.ServiceAccount) (github.Grant, error) { return g, nil }
	return p
}

func account(namespace string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: "app"}
}

func (w *environment) options(namespace string, more ...auth.Option) []auth.Option {
	return w.Options(namespace, "app", more...)
}

func get(ctx context.Context, p *github.Provider, opts ...auth.Option) (*github.Token, error) {
	token, err := auth.GetAccessToken(ctx, p, opts...)
	if err != nil {
		return nil, err
	}
	return github.FromToken(token)
}

// calls returns how many tokens GitHub was asked for.
func (w *environment) calls() int { return w.Cloud.Calls("api.github.com", "") }

func TestServiceAccountGetsItsGrant(t *testing.T) {
	w := newEnvironment(t)
	for namespace, want := range map[string]string{
		"tenant-a": "42 [org-a/app org-a/infra] map[contents:write issues:read metadata:read]",
		"tenant-b": "43 [org-b/app] map[contents:read metadata:read]",
		"tenant-c": "42 [org-a/app org-a/infra org-a/secret] map[contents:read metadata:read]",
	} {
		token, err := get(t.Context(), w.provider(), w.options(namespace)...)
		if err != nil {
			t.Fatal(err)
		}
		id, ok := w.github.Identity(token.Reveal())
		if got := fmt.Sprint(id.Installation, id.Repositories, id.Permissions); !ok || got != want {
			t.Errorf("%s got %s, want %s", namespace, got, want)
		}
		if token.GetDuration() > time.Hour || token.GetDuration() < 59*time.Minute || !token.ExpiresAt().After(time.Now()) {
			t.Errorf("got %v, want one that is valid for an hour", token)
		}
	}
}

// Method, path and body are those of GitHub's own SDK. Accept and version are
// those that GitHub's documents ask for.
func TestRequest(t *testing.T) {
	w, seen := newEnvironment(t), &http.Request{}
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		seen = r
		return w.Cloud.Client().Transport.RoundTrip(r)
	})}
	if _, err := get(t.Context(), w.provider(), w.options("tenant-b", auth.WithHTTPClient(client))...); err != nil {
		t.Fatal(err)
	}
	const want = "POST https://api.github.com/app/installations/43/access_tokens"
	if got := seen.Method + " " + seen.URL.String(); got != want {
		t.Error(got)
	}
	for name, want := range map[string]string{"Accept": "application/vnd.github+json",
		"Content-Type":         "application/json; charset=utf-8",
		"X-GitHub-Api-Version": "2022-11-28", "User-Agent": "workloadid"} {
		if got := seen.Header.Get(name); got != want {
			t.Errorf("the header %s is %q, want %q", name, got, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Annotations and labels of a tenant, and annotations of the caller, reach
// neither function.
func TestTenantsChooseNothing(t *testing.T) {
	w := newEnvironment(t)
	account := testenv.ServiceAccount("tenant-b", "chooser", "installation", "42")
	account.Labels = map[string]string{"tenant": "tenant-a"}
	kube, p := w.Issuer.Client(account), w.provider()
	var seen []*corev1.ServiceAccount
	p.Grant = func(sa *corev1.ServiceAccount) (github.Grant, error) {
		seen = append(seen, sa)
		return grantTo(sa)
	}
	p.Sign = func(ctx context.Context, sa *corev1.ServiceAccount, digest []byte) ([]byte, error) {
		seen = append(seen, sa)
		return github.SignWith(w.key)(ctx, sa, digest)
	}
	_, err := get(t.Context(), p, auth.WithServiceAccount(client.ObjectKeyFromObject(account), kube),
		testenv.Owner("tenant-b"),
		auth.WithHTTPClient(w.Cloud.Client()), auth.WithAnnotations(map[string]string{"installation": "42"}))
	if err != nil || len(seen) < 3 {
		t.Fatalf("%v, asked %d times", err, len(seen))
	}
	for _, sa := range seen {
		want := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-b", Name: "chooser", UID: sa.UID}}
		if fmt.Sprint(sa) != fmt.Sprint(want) || sa.UID == "" {
			t.Errorf("the controller's functions saw %v", sa)
		}
	}
}

func TestWithoutAGrant(t *testing.T) {
	w := newEnvironment(t)
	_, err := get(t.Context(), w.provider(), w.options("stranger")...)
	testenv.CheckError(t, err, auth.ErrDenied, `github: ServiceAccount "stranger/app"`,
		"grants this ServiceAccount nothing",
		"github.Provider.Grant")
	for name, tc := range map[string]struct {
		refusal error
		reason  provider.Reason
		want    string
	}{
		"an error": {errors.New("not a customer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"),
			auth.ErrDenied, "the controller refuses: not a customer"},
		"an error with a reason": {&auth.Error{Reason: auth.ErrUnavailable, Message: "still reading"}, auth.ErrUnavailable,
			"still reading"},
		"an error with its cause": {fmt.Errorf("of: %w", &auth.Error{Reason: auth.ErrMisconfigured, Message: "typo"}),
			auth.ErrMisconfigured, "typo"},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.provider()
			p.Grant = func(*corev1.ServiceAccount) (github.Grant, error) { return grants()["tenant-a"], tc.refusal }
			_, err := get(t.Context(), p, w.options("tenant-a")...)
			testenv.CheckError(t, err, tc.reason, tc.want)
		})
	}
	testenv.ExpectNone(t, w.calls())
}

func TestMalformedGrants(t *testing.T) {
	w, one, read := newEnvironment(t), []string{"app"}, map[string]string{"contents": "read"}
	for want, g := range map[string]github.Grant{
		"either repositories or all": {Installation: 42, Permissions: read},
		"repositories or all of them": {Installation: 42, Permissions: read, Repositories: one,
			AllRepositories: true},
		"no permission":    {Installation: 42, Repositories: one},
		`"org/app" is not`: {Installation: 42, Repositories: []string{"org/app"}, Permissions: read},
		`".." is not`:      {Installation: 42, Repositories: []string{".."}, Permissions: read},
		`"" is not`:        {Installation: 42, Repositories: []string{""}, Permissions: read},
		`"a,b" is not`:     {Installation: 42, Repositories: []string{"a,b"}, Permissions: read},
		`"contents:all" is not`: {Installation: 42, Repositories: one,
			Permissions: map[string]string{"contents": "all"}},
		`"contents:" is not`: {Installation: 42, Repositories: one,
			Permissions: map[string]string{"contents": ""}},
		`"a b:read" is not`: {Installation: 42, Repositories: one,
			Permissions: map[string]string{"a b": "read"}},
		"101 repositories, at most 100 are poss": {Installation: 42, Repositories: slices.Repeat(one, 101),
			Permissions: read},
	} {
		_, err := get(t.Context(), w.granting(g), w.options("tenant-a")...)
		testenv.CheckError(t, err, auth.ErrMisconfigured, "the grant for GitHub is refused", want, "github.Provider.Grant")
	}
	testenv.ExpectNone(t, w.calls())
}

// A caller may ask for less than the grant, and for nothing else. The error
// names both.
func TestNarrowing(t *testing.T) {
	w := newEnvironment(t)
	permissions := func(pairs ...string) auth.Option {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return github.WithPermissions(m)
	}
	for name, tc := range map[string]struct {
		namespace string
		opts      []auth.Option
		want      string
		reason    provider.Reason
		message   []string
	}{
		"one repository": {"tenant-a", []auth.Option{github.WithRepositories("app")},
			"[org-a/app] map[contents:write issues:read metadata:read]", "", nil},
		"a permission": {"tenant-a", []auth.Option{permissions("issues", "read")},
			"[org-a/app org-a/infra] map[issues:read metadata:read]", "", nil},
		"a lower level": {"tenant-a", []auth.Option{permissions("contents", "read")},
			"[org-a/app org-a/infra] map[contents:read metadata:read]", "", nil},
		"one of all": {"tenant-c", []auth.Option{github.WithRepositories("secret")},
			"[org-a/secret] map[contents:read metadata:read]", "", nil},
		"another repository": {"tenant-a", []auth.Option{github.WithRepositories("app", "secret")}, "", auth.ErrDenied,
			[]string{`"secret"`, `["app" "infra"]`}},
		"a higher level": {"tenant-b", []auth.Option{permissions("contents", "write")}, "", auth.ErrDenied,
			[]string{`"contents:write"`, `["contents:read"]`}},
		"another permission": {"tenant-b", []auth.Option{permissions("issues", "read")}, "", auth.ErrDenied,
			[]string{`"issues:read"`, `["contents:read"]`}},
		"no repository": {"tenant-a", []auth.Option{github.WithRepositories()}, "", auth.ErrMisconfigured,
			[]string{"either repositories or all"}},
		"no permission": {"tenant-a", []auth.Option{permissions()}, "", auth.ErrMisconfigured,
			[]string{"no permission"}},
		"malformed": {"tenant-c", []auth.Option{github.WithRepositories("../org-b/app")}, "", auth.ErrMisconfigured,
			[]string{`"../org-b/app"`}},
		"the last one counts": {"tenant-a", []auth.Option{github.WithRepositories("app"), github.WithRepositories("secret")},
			"", auth.ErrDenied, []string{`"secret"`}},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.calls()
			token, err := get(t.Context(), w.provider(), w.options(tc.namespace, tc.opts...)...)
			if tc.reason != "" {
				testenv.CheckError(t, err, tc.reason, append(tc.message, "github.WithRepositories")...)
				if w.calls() != before {
					t.Error("GitHub was asked")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			id, _ := w.github.Identity(token.Reveal())
			if got := fmt.Sprint(id.Repositories, id.Permissions); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// The Policy sees what the token will do, also if it is cached.
func TestPolicySeesTheGrant(t *testing.T) {
	w, tokens, p := newEnvironment(t), testenv.Cache(t), github.Provider{}
	p.AppID, p.Sign, p.Grant = appID, github.SignWith(w.key), grantTo
	var seen []string
	policy := auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
		seen = append(seen, r.Identity)
		return nil
	}})
	for range 2 {
		if _, err := get(t.Context(), &p, w.options("tenant-a", policy, testenv.WithCache(tokens, "tenant-a"),
			github.WithPermissions(map[string]string{"contents": "read"}))...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := get(t.Context(), &p, w.options("tenant-c", policy)...); err != nil {
		t.Fatal(err)
	}
	const first = "app=Iv23liExample installation=42 repositories=app,infra permissions=contents:read"
	const all = "app=Iv23liExample installation=42 repositories=* permissions=contents:read"
	if want := []string{first, first, all}; !slices.Equal(seen,
		want) {
		t.Errorf("the policy saw %q", seen)
	}
}

// A grant that changes after the Policy has seen it gives no token, which would
// be cached as the one of the old grant.
func TestGrantChangesDuringACall(t *testing.T) {
	w, tokens, asked := newEnvironment(t), testenv.Cache(t), 0
	p := w.provider()
	p.Grant = func(*corev1.ServiceAccount) (github.Grant, error) {
		asked++
		return grants()[map[bool]string{true: "tenant-b", false: "tenant-a"}[asked == 1]], nil
	}
	opts := w.options("tenant-a", testenv.WithCache(tokens, "tenant-a"))
	_, err := get(t.Context(), p, opts...)
	testenv.CheckError(t, err, auth.ErrUnavailable, "the grant has changed")
	testenv.ExpectNone(t, w.calls())
	token, err := get(t.Context(), p, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := w.github.Identity(token.Reveal()); id.Installation != 42 {
		t.Errorf("got %+v", id)
	}
}

// A withdrawn grant ends access at once, in spite of the cache.
func TestRevocation(t *testing.T) {
	w, tokens, all := newEnvironment(t), testenv.Cache(t), grants()
	p := w.provider()
	p.Grant = func(sa *corev1.ServiceAccount) (github.Grant, error) { return all[sa.Namespace], nil }
	call := func(namespace string) error {
		_, err := get(t.Context(), p, w.options(namespace, testenv.WithCache(tokens, namespace))...)
		return err
	}
	if err := errors.Join(call("tenant-a"), call("tenant-b"), call("tenant-b")); err != nil || w.calls() != 2 {
		t.Fatalf("%v after %d calls", err, w.calls())
	}
	delete(all, "tenant-a")
	testenv.CheckError(t, call("tenant-a"), auth.ErrDenied, "nothing at GitHub")
	all["tenant-b"] = github.Grant{Installation: 43, Repositories: []string{"app"},
		Permissions: map[string]string{"contents": "write"}}
	testenv.CheckError(t, call("tenant-b"), auth.ErrDenied, "HTTP 422")
	if w.calls() != 3 {
		t.Errorf("%d calls of GitHub", w.calls())
	}
}

// No token in hand is verified by anybody, so it proves nothing: here the
// forger signs it itself.
func TestForgedTokenInHand(t *testing.T) {
	w, forger := newEnvironment(t), testenv.Forger(t)
	sa := testenv.ServiceAccount("tenant-a", "app")
	forged, err := forger.Sign(forger.Claims(sa, []string{"https://api.github.com"}, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	own := []auth.Option{testenv.Owner("tenant-a"), auth.WithHTTPClient(w.Cloud.Client())}
	_, err = get(t.Context(), w.provider(), append(own, auth.WithSubjectToken(auth.NewStaticTokenSource(forged), *sa))...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "token in hand", "auth.WithServiceAccount")
	testenv.ExpectNone(t, w.calls())
	requested := &auth.TokenRequest{Client: w.Client, ServiceAccount: sa}
	if _, err := get(t.Context(), w.provider(), append(own, auth.WithSubjectToken(requested, *sa))...); err != nil {
		t.Errorf("a token of the API server: %v", err)
	}
}

// Another issuer's token proves nothing either. Without a ServiceAccount, Grant
// would be asked about none.
func TestSubjectIssuer(t *testing.T) {
	w := newEnvironment(t)
	p := w.granting(grants()["tenant-a"])
	for _, opts := range [][]auth.Option{w.options("tenant-a"), {auth.WithHTTPClient(w.Cloud.Client())}} {
		_, err := get(t.Context(), p, append(opts, auth.WithSubjectIssuer(struct{ auth.SubjectIssuer }{}))...) // never asked
		testenv.CheckError(t, err, auth.ErrMisconfigured, "sees no subject token", "auth.WithSubjectIssuer")
	}
	testenv.ExpectNone(t, w.calls())
}

func TestControllersOwnIdentity(t *testing.T) {
	w, tokens := newEnvironment(t), testenv.Cache(t)
	own := []auth.Option{auth.WithHTTPClient(w.Cloud.Client()), testenv.WithCache(tokens, "tenant-a")}
	_, err := get(t.Context(), w.provider(), own...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "the controller itself", "github.Provider.OwnGrant")
	var e *auth.Error
	if !errors.As(err, &e) || e.Cause != provider.CauseNoOwnIdentity {
		t.Errorf("got %#v, want the cause %q", err, provider.CauseNoOwnIdentity)
	}
	seen := map[string]bool{}
	for _, namespace := range []string{"tenant-a", "tenant-b", "tenant-c"} { // as three controllers that share a cache
		p := w.provider()
		p.OwnGrant = grants()[namespace]
		for range 2 {
			token, err := get(t.Context(), p, own...)
			if err != nil {
				t.Fatal(err)
			}
			if id, _ := w.github.Identity(token.Reveal()); id.Installation != p.OwnGrant.Installation {
				t.Errorf("%s got %+v", namespace, id)
			}
			seen[token.Reveal()] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d tokens for three grants", len(seen))
	}
	_, err = get(t.Context(), w.provider(), append(own, auth.WithPolicy(auth.Policy{RequireServiceAccount: true}))...)
	testenv.CheckError(t, err, auth.ErrDenied, "own identity")
}

func TestMalformedProviders(t *testing.T) {
	w := newEnvironment(t)
	for want, change := range map[string]func(*github.Provider){
		"github.Provider.AppID":              func(p *github.Provider) { p.AppID = "" },
		`"Iv1 \n"`:                           func(p *github.Provider) { p.AppID = "Iv1 \n" },
		"github.Provider.Sign":               func(p *github.Provider) { p.Sign = nil },
		"github.Provider.Grant":              func(p *github.Provider) { p.Grant = nil },
		"begin with https":                   func(p *github.Provider) { p.URL = "http://github.example/api/v3" },
		"user name":                          func(p *github.Provider) { p.URL = "https://a:secret-word@git.example/api/v3" },
		"is not an API":                      func(p *github.Provider) { p.URL = "https://github.example" },
		`"https://api.example"`:              func(p *github.Provider) { p.URL = "https://api.example/" },
		`"https://github.com"`:               func(p *github.Provider) { p.URL = "https://github.com" },
		`"https://api.ghe.com"`:              func(p *github.Provider) { p.URL = "https://api.ghe.com" },
		`"https://api.github.com.example"`:   func(p *github.Provider) { p.URL = "https://api.github.com.example" },
		`"https://github.example/api/v3/.."`: func(p *github.Provider) { p.URL = "https://github.example/api/v3/.." },
	} {
		p := w.provider()
		change(p)
		_, err := get(t.Context(), p, w.options("tenant-a")...)
		testenv.CheckError(t, err, auth.ErrMisconfigured, want)
		if strings.Contains(err.Error(), "secret-word") {
			t.Error(err)
		}
	}
	_, err := get(t.Context(), w.provider(), w.options("tenant-a", auth.WithScopes("repo"))...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `"repo"`, "github.WithPermissions")
}

func TestConformance(t *testing.T) {
	w := newEnvironment(t)
	w.addGitHub("github.example")
	other := github.Grant{Installation: 42, Repositories: []string{"app"},
		Permissions: map[string]string{"contents": "read"}}
	for _, url := range []string{"", "https://github.example/api/v3"} {
		host := strings.TrimSuffix(strings.TrimPrefix(url, "https://"), "/api/v3")
		if host == "" {
			host = "github.com"
		}
		t.Run(host, func(t *testing.T) {
			authtest.RunConformance(t, authtest.Harness{
				New: func(*testing.T) auth.Provider {
					p := w.provider()
					p.URL = url
					return p
				},
				Options:   []auth.Option{auth.WithHTTPClient(w.Cloud.Client())},
				NoRegions: true, Client: w.Client,
				Good: account("tenant-a"), Other: account("tenant-b"), Refused: account("stranger"),
				Fields: map[string]any{"Name": "other", "ClusterID": nil, "AppID": "other", "URL": "https://other.example/api/v3",
					"Sign":     nil,
					"Grant":    func(*corev1.ServiceAccount) (github.Grant, error) { return other, nil },
					"OwnGrant": nil},
				Break: w.Break,
				Calls: func() int { return w.Cloud.Calls("", "") },
				Secrets: func(t *testing.T, token auth.Token) []string {
					own, err := github.FromToken(token)
					if err != nil {
						t.Fatal(err)
					}
					return []string{own.Reveal()}
				},
				GitURL: "https://" + host + "/org-a/app",
				ForeignGitURLs: []string{"https://" + host + ".example/org-a/app", "https://example.com/" + host,
					"https://" + host + ":8443/org-a/app",
					"https://api.github.com/org-a/app", "https://gist.github.com/app", "https://xgithub.com/org-a/app"},
			})
		})
	}
}

// Clocks of a synctest bubble are exact.
func TestExpiry(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		behind time.Duration // of this machine
		want   time.Duration
	}{
		"clocks agree":         {0, time.Hour},
		"this clock is behind": {5 * time.Minute, time.Hour},
		"this clock is ahead":  {-50 * time.Second, 59*time.Minute + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				expiry := time.Now().Add(tc.behind + time.Hour).UTC().Format(time.RFC3339)
				client := &http.Client{Transport: created(strings.Replace(goodAnswer, "EXPIRY", expiry, 1))}
				sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-b", Name: "app"}}
				token, err := w.provider().NewTokenForServiceAccount(t.Context(), "", sa, &provider.Options{HTTPClient: client})
				if err != nil || token.GetDuration() != tc.want {
					t.Errorf("got %v, %v, want %s", token, err, tc.want)
				}
			})
		})
	}
}

// The option of the call reaches the provider.
func TestAnotherClusterGetsNoToken(t *testing.T) {
	w := newEnvironment(t)
	_, err := get(t.Context(), w.provider(), w.options("tenant-a", auth.WithClusterID("two"))...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `the call is for the cluster "two"`)
}

// GitHub sees no token of the cluster, and the API server of a tenant's cluster
// shows any namespace and name.
func TestProvidersBelongToOneCluster(t *testing.T) {
	for name, tc := range map[string]struct{ provider, call, want string }{
		"its cluster": {"one", "one", ""},
		"no cluster":  {"", "", ""},
		"another cluster": {"one", "two",
			`the call is for the cluster "two", the provider's grants are for "one"`},
		"a call without a cluster":     {"one", "", `the cluster ""`},
		"a provider without a cluster": {"", "two", "(github.Provider.ClusterID, auth.WithClusterID)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			p := w.provider()
			p.ClusterID = tc.provider
			err := p.ValidateOptions(&provider.Options{Subject: client.ObjectKey{Namespace: "tenant-a", Name: "app"},
				ClusterID: tc.call})
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
		})
	}
}
