package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func mustGet(t *testing.T, provider auth.Provider, opts ...auth.Option) *tagged {
	t.Helper()
	token, err := auth.GetAccessToken(t.Context(), provider, opts...)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := token.(*tagged)
	if !ok {
		t.Fatalf("got a %T", token)
	}
	return got
}

// A change of the ServiceAccount takes effect on the next call, although the
// credential is cached.
func TestServiceAccountIsReadOnEveryCall(t *testing.T) {
	k8s, provider := newCluster(), &exchange{}
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "one"})
	opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a")}

	first := mustGet(t, provider, opts...)
	if again := mustGet(t, provider, opts...); again != first {
		t.Error("the second call made an exchange")
	}
	if reads, requests := k8s.reads.Load(), k8s.requests.Load(); reads != 2 || requests != 1 {
		t.Errorf("two calls made %d reads and %d token requests, want 2 and 1", reads, requests)
	}

	k8s.annotate(key, map[string]string{"identity": "two"})
	if got := mustGet(t, provider, opts...); got.identity != "two" {
		t.Errorf("after re-annotating: identity %q", got.identity)
	}
	k8s.annotate(key, map[string]string{"identity": "one"})
	k8s.create(key.Namespace, key.Name, map[string]string{"identity": "one"})
	if got := mustGet(t, provider, opts...); got == first {
		t.Error("after re-creating, the credential of the old one was served")
	}
	k8s.annotate(key, map[string]string{"identity": "malformed"})
	_, err := auth.GetAccessToken(t.Context(), provider, opts...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `exchange: ServiceAccount "tenant-a/app"`, `"identity" is malformed`)
	k8s.remove(key)
	_, err = auth.GetAccessToken(t.Context(), provider, opts...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "not found", "create it")
	if n := provider.controller.Load(); n != 0 {
		t.Errorf("fell back to the controller's identity %d times", n)
	}
}

func TestServiceAccountThatIsBeingDeleted(t *testing.T) {
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", nil)
	k8s.accounts[key].DeletionTimestamp = &metav1.Time{Time: time.Now()}
	_, err := auth.GetAccessToken(t.Context(), &exchange{}, auth.WithServiceAccount(key, k8s),
		testenv.Owner("tenant-a"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "being deleted")
}

// The policy is asked on hits too: what it refuses now is refused, whatever was
// allowed before.
func TestPolicyIsCheckedOnHits(t *testing.T) {
	k8s, provider, tokens := newCluster(), &exchange{}, testenv.Cache(t)
	key := k8s.create("tenant-a", "app", nil)
	mustGet(t, provider, auth.WithServiceAccount(key, k8s), testenv.WithCache(tokens, "tenant-a"))

	_, err := auth.GetAccessToken(t.Context(), provider, auth.WithServiceAccount(key, k8s),
		testenv.WithCache(tokens, "tenant-b"))
	testenv.CheckError(t, err, auth.ErrDenied, `"tenant-b"`)
	refuse := auth.WithPolicy(auth.Policy{Authorize: func(context.Context, auth.AuthorizeRequest) error {
		return errors.New("no longer")
	}})
	_, err = auth.GetAccessToken(t.Context(), provider, auth.WithServiceAccount(key, k8s),
		testenv.WithCache(tokens, "tenant-a"), refuse)
	testenv.CheckError(t, err, auth.ErrDenied, "no longer")

	allow := auth.WithPolicy(auth.Policy{AllowCrossNamespace: func(owner cache.InvolvedObject, sa client.ObjectKey) bool {
		return owner.Namespace == "platform" && sa.Namespace == "tenant-a"
	}})
	mustGet(t, provider, auth.WithServiceAccount(key, k8s), testenv.WithCache(tokens, "platform"), allow)
}

func TestDefaultServiceAccounts(t *testing.T) {
	k8s, provider := newCluster(), &exchange{}
	for _, name := range []string{"access", "kubeconfig", "decryption"} {
		k8s.create("tenant-a", name, nil)
	}
	settings := auth.WithSettings(&auth.Settings{ObjectLevelWorkloadIdentity: true, DefaultServiceAccount: "access",
		DefaultKubeConfigServiceAccount: "kubeconfig", DefaultDecryptionServiceAccount: "decryption"})
	for usage, want := range map[auth.Usage]string{
		auth.UsageAccess: "tenant-a/access", auth.UsageKubeConfig: "tenant-a/kubeconfig",
		auth.UsageDecryption: "tenant-a/decryption"} {
		got := mustGet(t, provider, settings, auth.WithClient(k8s), auth.WithUsage(usage), testenv.Owner("tenant-a"))
		if got.subject != want {
			t.Errorf("usage %d: got %s, want %s", usage, got.subject, want)
		}
	}
}

func TestMissingDefaultServiceAccountIsNamedAsTheControllersDefault(t *testing.T) {
	settings := auth.WithSettings(&auth.Settings{ObjectLevelWorkloadIdentity: true, DefaultServiceAccount: "access",
		DefaultKubeConfigServiceAccount: "kubeconfig", DefaultDecryptionServiceAccount: "decryption"})
	for usage, want := range map[auth.Usage][]string{
		auth.UsageAccess: {"tenant-a/access", "the controller's default ServiceAccount for access tokens",
			"correct the default (auth.Settings.DefaultServiceAccount"},
		auth.UsageKubeConfig: {"tenant-a/kubeconfig", "the controller's default ServiceAccount for remote clusters",
			"correct the default (auth.Settings.DefaultKubeConfigServiceAccount"},
		auth.UsageDecryption: {"tenant-a/decryption", "the controller's default ServiceAccount for decryption",
			"correct the default (auth.Settings.DefaultDecryptionServiceAccount"},
	} {
		_, err := auth.GetAccessToken(t.Context(), &exchange{}, settings, auth.WithClient(newCluster()),
			auth.WithUsage(usage), testenv.Owner("tenant-a"))
		testenv.CheckError(t, err, auth.ErrMisconfigured, want...)
	}
	_, err := auth.GetAccessToken(t.Context(), &exchange{}, settings, testenv.Owner("tenant-a"),
		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "access"}, newCluster()))
	if err == nil || strings.Contains(err.Error(), "default") {
		t.Errorf("a ServiceAccount that the object names: %v", err)
	}
}

// A token that is not what was asked for never leaves.
func TestSubjectTokenIsCheckedBeforeItIsSent(t *testing.T) {
	set := func(claim string, value any) func(map[string]any) {
		return func(c map[string]any) { c[claim] = value }
	}
	for name, tc := range map[string]struct {
		claims func(map[string]any)
		raw    func(string) string
		reason provider.Reason
		want   string
	}{
		"another subject": {set("sub", "system:serviceaccount:tenant-b:app"), nil, auth.ErrDenied, "tenant-b"},
		"no subject":      {set("sub", ""), nil, auth.ErrDenied, `""`},
		"another audience": {set("aud", "https://kubernetes.default.svc"), nil, auth.ErrDenied,
			"kubernetes.default.svc"},
		"an audience more":           {set("aud", []string{"exchange", "vault"}), nil, auth.ErrDenied, "vault"},
		"no audience":                {set("aud", nil), nil, auth.ErrDenied, "audiences"},
		"the issuer is the audience": {set("iss", "exchange"), nil, auth.ErrDenied, "good for the API server"},
		"another UID": {set("kubernetes.io", map[string]any{"serviceaccount": map[string]any{"uid": "x"}}),
			nil, auth.ErrDenied, `"x"`},
		"expired":          {set("exp", time.Now().Add(-time.Minute).Unix()), nil, auth.ErrUnavailable, "expired"},
		"without expiry":   {set("exp", nil), nil, auth.ErrUnavailable, "expiry"},
		"expiry zero":      {set("exp", 0), nil, auth.ErrUnavailable, "expiry"},
		"expiry of 10^300": {set("exp", 1e300), nil, auth.ErrUnavailable, "expiry"},
		"expiry is a word": {set("exp", "soon"), nil, auth.ErrMisconfigured, "JSON"},
		"empty":            {nil, func(string) string { return "" }, auth.ErrUnavailable, "no token"},
		"not a JWT":        {nil, func(string) string { return "opaque" }, auth.ErrMisconfigured, "three parts"},
		"HTML": {nil, func(string) string {
			return "<html>a.b.c</html>"
		}, auth.ErrMisconfigured, "not a JWT"},
		"1 MB": {nil, func(s string) string {
			return s + strings.Repeat("a", 1<<20)
		}, auth.ErrMisconfigured, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			k8s := newCluster()
			k8s.claims, k8s.raw = tc.claims, tc.raw
			key := k8s.create("tenant-a", "app", nil)
			_, err := auth.GetAccessToken(t.Context(), silent{t}, auth.WithServiceAccount(key, k8s),
				testenv.Owner("tenant-a"), auth.WithAudiences("exchange"),
				auth.WithPolicy(auth.Policy{Audiences: []string{"exchange"}}))
			testenv.CheckError(t, err, tc.reason, tc.want)
			checkNoCanary(t, err)
		})
	}
}

func checkNoCanary(t *testing.T, values ...any) {
	t.Helper()
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, canary) ||
				strings.Contains(text, "Y2FuYXJ5LWluLXRoZS1zaWduYXR1cmU") {
				t.Errorf("the token shows in %s", text)
			}
		}
	}
}

func TestAudienceOfTheAPIServerIsNeverRequested(t *testing.T) {
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", nil)
	for _, audience := range []string{"https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local",
		"k3s", "rke2", "our-own"} {
		_, err := auth.GetAccessToken(t.Context(), silent{t}, auth.WithServiceAccount(key, k8s),
			testenv.Owner("tenant-a"), auth.WithAudiences(audience),
			auth.WithPolicy(auth.Policy{AllowAnyAudience: true, APIServerAudiences: []string{"our-own"}}))
		testenv.CheckError(t, err, auth.ErrDenied, audience, "API server")
	}
	if n := k8s.requests.Load(); n != 0 {
		t.Errorf("%d tokens were requested", n)
	}
}

func TestAnswersOfTheAPIServer(t *testing.T) {
	forbidden := apierrors.NewForbidden(serviceAccounts, "app",
		errors.New(`User "system:serviceaccount:flux:controller" cannot create resource "serviceaccounts/token"`))
	for name, tc := range map[string]struct {
		read, request error
		reason        provider.Reason
		want          []string
	}{
		"no right to read": {forbidden, nil, auth.ErrDenied,
			[]string{"verb get on serviceaccounts", `"tenant-a"`, "HTTP 403"}},
		"no right to request": {nil, forbidden, auth.ErrDenied,
			[]string{"verb create on serviceaccounts/token", `"app"`, `"tenant-a"`}},
		"login expired": {apierrors.NewUnauthorized("Unauthorized"), nil, auth.ErrUnavailable, []string{"HTTP 401"}},
		"gone meanwhile": {nil, apierrors.NewNotFound(serviceAccounts, "app"), auth.ErrMisconfigured,
			[]string{"create it"}},
		"re-created": {nil, apierrors.NewConflict(serviceAccounts, "app", errors.New("UID")), auth.ErrUnavailable,
			[]string{"HTTP 409"}},
		"busy": {apierrors.NewTooManyRequests("slow down", 7), nil, auth.ErrThrottled, []string{"HTTP 429"}},
		"broken": {nil, apierrors.NewInternalError(errors.New("etcd")), auth.ErrUnavailable,
			[]string{"HTTP 500"}},
		"unreachable": {errors.New("connection refused"), nil, auth.ErrUnavailable, []string{"connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			k8s := newCluster()
			key := k8s.create("tenant-a", "app", nil)
			k8s.readErr, k8s.requestErr = tc.read, tc.request
			_, err := auth.GetAccessToken(t.Context(), &exchange{}, auth.WithServiceAccount(key, k8s),
				testenv.Owner("tenant-a"))
			testenv.CheckError(t, err, tc.reason, append(tc.want, `exchange: ServiceAccount "tenant-a/app"`)...)
			if name == "busy" && auth.RetryAfter(err) != 7*time.Second {
				t.Errorf("RetryAfter is %s", auth.RetryAfter(err))
			}
		})
	}
}

func TestFaultyProviders(t *testing.T) {
	for name, tc := range map[string]struct {
		mint func(context.Context, string) (auth.Token, error)
		want string
	}{
		"nothing": {func(context.Context, string) (auth.Token, error) { return nil, nil }, "no token and no error"},
		"a nil pointer": {func(context.Context, string) (auth.Token, error) {
			return (*tagged)(nil), nil
		}, "no token and no error"},
		"an expired one": {func(context.Context, string) (auth.Token, error) { return &tagged{}, nil }, "has expired"},
		"a panic":        {func(_ context.Context, jwt string) (auth.Token, error) { panic(jwt) }, "panic"},
		"the token in it": {func(_ context.Context, jwt string) (auth.Token, error) {
			return nil, fmt.Errorf("cannot use %s", jwt)
		}, "cannot use"},
		"the token in its own error": {func(_ context.Context, jwt string) (auth.Token, error) {
			return nil, &auth.Error{Message: "bad token\n" + url.QueryEscape(jwt) + strings.Repeat("x", 2<<10), Code: jwt,
				Remedy: jwt, Option: jwt, RequestID: jwt}
		}, "bad token [redacted]x"},
	} {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cached %t", name, cached), func(t *testing.T) {
				k8s, provider := newCluster(), &exchange{mint: tc.mint}
				key := k8s.create("tenant-a", "app", nil)
				opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a")}
				if cached {
					opts = append(opts, testenv.Cached(t, "tenant-a"))
				}
				token, err := auth.GetAccessToken(t.Context(), provider, opts...)
				testenv.CheckError(t, err, auth.ErrUnavailable, tc.want, `"tenant-a/app"`)
				checkNoCanary(t, err)
				if token != nil {
					t.Errorf("got a token with the error: %v", token)
				}
			})
		}
	}
}

// A provider that panics on an annotation is a bug, but not one that lets a
// tenant stop the controller.
func TestPanicWhileInspecting(t *testing.T) {
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", nil)
	provider := &exchange{inspect: func(corev1.ServiceAccount) { panic("annotation") }}
	token, err := auth.GetAccessToken(t.Context(), provider, auth.WithServiceAccount(key, k8s),
		testenv.Owner("tenant-a"))
	testenv.CheckError(t, err, auth.ErrUnavailable, "panic")
	if token != nil {
		t.Error("got a token with the error")
	}
}

// missing is an error that providers return by mistake: a nil pointer, which
// has no text.
type missing struct{ text string }

func (m *missing) Error() string { return m.text }

type withoutText struct{ exchange }

func (*withoutText) GetIdentity(*corev1.ServiceAccount, *provider.Options) (string, error) {
	return "", (*missing)(nil)
}

type unnamed struct{ *exchange }

func (u unnamed) GetName() string { return u.exchange.mustBeThere() }

func (e *exchange) mustBeThere() string { return fmt.Sprint(e.lifetime) }

// Nor is one whose error, or which itself, is a nil pointer.
func TestPanicWhileDescribing(t *testing.T) {
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", nil)
	for name, provider := range map[string]auth.Provider{"exchange": &withoutText{}, "": unnamed{}} {
		token, err := auth.GetAccessToken(t.Context(), provider, auth.WithServiceAccount(key, k8s),
			testenv.Owner("tenant-a"))
		testenv.CheckError(t, err, auth.ErrUnavailable, "panic", `"tenant-a/app"`, name)
		if token != nil {
			t.Errorf("%q: got a token with the error", name)
		}
	}
}

// During an outage the text of the error stays the same.
func TestErrorsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), &exchange{}
		provider.mint = func(context.Context, string) (auth.Token, error) {
			return nil, &auth.Error{Reason: auth.ErrUnavailable, StatusCode: 503, RequestID: fmt.Sprint(provider.mints.Load())}
		}
		opts := []auth.Option{auth.WithServiceAccount(k8s.create("tenant-b", "app", nil), k8s),
			testenv.Cached(t, "tenant-b")}
		messages := map[string]bool{}
		for range 600 {
			time.Sleep(time.Second) // of the bubble
			_, err := auth.GetAccessToken(t.Context(), provider, opts...)
			testenv.CheckError(t, err, auth.ErrUnavailable)
			messages[err.Error()] = true
		}
		if len(messages) != 1 || provider.mints.Load() < 2 {
			t.Errorf("the message changes within %d exchanges: %v", provider.mints.Load(), messages)
		}
	})
}

// An API server that starts refuses every request for a moment. That evicts no
// valid credential.
func TestAPIServerThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), &exchange{}
		key := k8s.create("tenant-a", "app", nil)
		opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a")}
		provider.mint = func(context.Context, string) (auth.Token, error) {
			return &tagged{expires: time.Now().Add(time.Hour)}, nil
		}
		valid := mustGet(t, provider, opts...)
		time.Sleep(50 * time.Minute) // of the bubble; it is due for renewal
		k8s.requestErr = apierrors.NewForbidden(serviceAccounts, "app", errors.New("RBAC is not read yet"))
		for range 3 {
			if got := mustGet(t, provider, opts...); got != valid {
				t.Error("another token")
			}
			synctest.Wait()
		}
		time.Sleep(10 * time.Minute)
		_, err := auth.GetAccessToken(t.Context(), provider, opts...)
		testenv.CheckError(t, err, auth.ErrDenied, "verb create on serviceaccounts/token")
	})
}

func TestTokenInHand(t *testing.T) {
	subject := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		Annotations: map[string]string{"identity": "one"}}}
	jwt := func(sub, uid string) string {
		return unsigned(map[string]any{"iss": "https://issuer.example", "sub": sub, "aud": []string{"exchange"},
			"exp":           time.Now().Add(time.Hour).Unix(),
			"kubernetes.io": map[string]any{"serviceaccount": map[string]any{"uid": uid}}})
	}
	provider, tokens := &exchange{}, testenv.Cache(t)
	get := func(source auth.SubjectTokenSource) (auth.Token, error) {
		return auth.GetAccessToken(t.Context(), provider, auth.WithSubjectToken(source, subject),
			auth.WithCache(tokens, cache.InvolvedObject{}))
	}
	first, err := get(auth.NewStaticTokenSource(jwt("system:serviceaccount:tenant-a:app", "u1")))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := get(auth.NewStaticTokenSource(jwt("system:serviceaccount:tenant-a:app", "u1"))); err != nil ||
		again != first {
		t.Errorf("the same token again: %v, %v", again, err)
	}
	// A forged token makes the same claims, but they are not verified.
	forged, err := get(auth.NewStaticTokenSource(jwt("system:serviceaccount:tenant-a:app", "u2")))
	if err != nil || forged == first {
		t.Errorf("another token was served the credential of the first: %v", err)
	}
	_, err = get(auth.NewStaticTokenSource(jwt("system:serviceaccount:tenant-b:app", "u1")))
	testenv.CheckError(t, err, auth.ErrDenied, "tenant-b")
	_, err = auth.GetAccessToken(t.Context(), provider, testenv.Owner("tenant-b"),
		auth.WithSubjectToken(auth.NewStaticTokenSource(jwt("system:serviceaccount:tenant-a:app", "u1")), subject))
	testenv.CheckError(t, err, auth.ErrDenied, `lies in namespace "tenant-a"`)

	path := filepath.Join(t.TempDir(), "token")
	_, err = get(auth.NewFileTokenSource(path))
	testenv.CheckError(t, err, auth.ErrMisconfigured, path)
	if err := os.WriteFile(path, []byte(jwt("system:serviceaccount:tenant-a:app", "u1")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if fromFile, err := get(auth.NewFileTokenSource(path)); err != nil || fromFile != first {
		t.Errorf("the same token from a file: %v, %v", fromFile, err)
	}
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = get(auth.NewFileTokenSource(path))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "larger than")
}

// A credential that was minted in time is not served to a token that has
// expired since.
func TestTokenInHandExpires(t *testing.T) {
	for name, source := range map[string]func(jwt string) auth.SubjectTokenSource{
		"static":                      auth.NewStaticTokenSource,
		"a source without the expiry": func(jwt string) auth.SubjectTokenSource { return forgetful(jwt) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider, tokens := &exchange{}, testenv.Cache(t)
				jwt := unsigned(map[string]any{"sub": "system:serviceaccount:tenant-a:app", "aud": "exchange",
					"exp": time.Now().Add(10 * time.Minute).Unix()})
				opts := []auth.Option{auth.WithSubjectToken(source(jwt), *testenv.ServiceAccount("tenant-a", "app")),
					auth.WithCache(tokens, cache.InvolvedObject{})}
				first := mustGet(t, provider, opts...)
				time.Sleep(10*time.Minute - time.Second) // of the bubble
				if got := mustGet(t, provider, opts...); got != first {
					t.Error("a valid token was not served from the cache")
				}
				time.Sleep(time.Second)
				_, err := auth.GetAccessToken(t.Context(), provider, opts...)
				testenv.CheckError(t, err, auth.ErrUnavailable, "the subject token has expired")
			})
		})
	}
}

// forgetful is a source that does not know when its token expires.
type forgetful string

func (s forgetful) Token(context.Context, []string) (string, time.Time, error) {
	return string(s), time.Time{}, nil
}

// The caller's slices and maps are its own again once the option is made: they
// decide about the key.
func TestOptionsCopyWhatTheyAreGiven(t *testing.T) {
	scopes, audiences, annotations := []string{"a"}, []string{"a"}, map[string]string{"a": "a"}
	options := []auth.Option{auth.WithScopes(scopes...), auth.WithAudiences(audiences...),
		auth.WithSubjectToken(auth.NewStaticTokenSource("t"),
			corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}})}
	scopes[0], audiences[0], annotations["a"] = "b", "b", "b"
	var got auth.Options
	for _, option := range options {
		option(&got)
	}
	if got.Scopes[0] != "a" || got.Audiences[0] != "a" || got.SubjectServiceAccount.Annotations["a"] != "a" {
		t.Errorf("scopes %q, audiences %q, annotations %q", got.Scopes, got.Audiences, got.SubjectServiceAccount.Annotations)
	}
}

// A restored etcd has the UIDs of the cluster that it was backed up from.
func TestClustersWithOneCache(t *testing.T) {
	provider, tokens := &exchange{}, testenv.Cache(t)
	get := func(id string) *tagged {
		k8s := newCluster()
		key := k8s.create("tenant-a", "app", nil)
		return mustGet(t, provider, auth.WithServiceAccount(key, k8s), testenv.WithCache(tokens, "tenant-a"),
			auth.WithClusterID(id))
	}
	east, west := get("east"), get("west")
	if east == west || get("east") != east || get("west") != west || get("") == east {
		t.Error("two clusters share a credential, or one does not keep its own")
	}
}

// The cause of an error may hold an address with its query, or the answer of a
// proxy.
func TestJSONOfErrorsLacksTheCause(t *testing.T) {
	err := &auth.Error{Provider: "aws", Message: "no answer",
		Err: &url.Error{Op: "Get", URL: "https://h/?sig=" + canary, Err: errors.New(canary)}}
	encoded, jsonErr := json.Marshal(err)
	if jsonErr != nil || !strings.Contains(string(encoded), "no answer") {
		t.Errorf("got %s, %v, want the message", encoded, jsonErr)
	}
	checkNoCanary(t, string(encoded))
}

func TestErrorsDoNotEncodeSecrets(t *testing.T) {
	_, err := auth.GetAccessToken(t.Context(), &exchange{},
		auth.WithSubjectToken(auth.NewStaticTokenSource(canary+".e30."+canary),
			corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}))
	encoded, jsonErr := json.Marshal(err)
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	checkNoCanary(t, err, string(encoded), auth.NewStaticTokenSource(canary))
}
