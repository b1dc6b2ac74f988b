package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// offline is a client that fails the test when it is asked for anything.
type offline struct {
	client.Client
	t *testing.T
}

func (c offline) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	c.t.Error("the API server was asked")
	return errors.New("offline")
}

func (c offline) SubResource(string) client.SubResourceClient {
	c.t.Error("a token was asked for")
	return nil
}

// silent is a provider that fails the test when it is asked for a credential.
type silent struct{ t *testing.T }

func (silent) GetName() string { return "silent" }

func (p silent) NewControllerToken(context.Context, *provider.Options) (auth.Token, error) {
	p.t.Error("the controller's credential was asked for")
	return nil, errors.New("silent")
}

func (silent) GetAudiences(context.Context, *corev1.ServiceAccount, *provider.Options) ([]string, error) {
	return []string{"silent"}, nil
}

func (silent) GetIdentity(*corev1.ServiceAccount, *provider.Options) (string, error) { return "", nil }

func (p silent) NewTokenForServiceAccount(context.Context, string, *corev1.ServiceAccount,
	*provider.Options) (auth.Token, error) {
	p.t.Error("an exchange was made")
	return nil, errors.New("silent")
}

// Mistakes in the options are reported before any network call, with problem
// and remedy.
func TestOptionsThatCannotWork(t *testing.T) {
	owner := auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"})
	key := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	subject := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}
	with := func(opts ...auth.Option) []auth.Option {
		return append([]auth.Option{owner, auth.WithServiceAccount(key, offline{t: t})}, opts...)
	}
	for name, tc := range map[string]struct {
		opts   []auth.Option
		reason provider.Reason
		want   []string
	}{
		"name without namespace": {
			[]auth.Option{owner, auth.WithServiceAccount(client.ObjectKey{Name: "app"}, offline{t: t})},
			auth.ErrMisconfigured, []string{`"app"`, "without a namespace"}},
		"namespace without name": {
			[]auth.Option{owner, auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a"}, offline{t: t})},
			auth.ErrMisconfigured, []string{`"tenant-a"`, "without a name"}},
		"empty reference": {[]auth.Option{owner, auth.WithServiceAccount(client.ObjectKey{}, offline{t: t})},
			auth.ErrMisconfigured, []string{"without a name"}},
		"path in the name": {[]auth.Option{owner,
			auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "../tenant-b"}, offline{t: t})},
			auth.ErrMisconfigured, []string{`"../tenant-b"`}},
		"namespace too long": {[]auth.Option{owner,
			auth.WithServiceAccount(client.ObjectKey{Namespace: strings.Repeat("a", 64), Name: "app"}, offline{t: t})},
			auth.ErrMisconfigured, []string{"not a valid name"}},
		"nil client": {[]auth.Option{owner, auth.WithServiceAccount(key, nil)},
			auth.ErrMisconfigured, []string{"client is nil"}},
		"no owner": {[]auth.Option{auth.WithServiceAccount(key, offline{t: t})},
			auth.ErrMisconfigured, []string{"WithOwner"}},
		"another namespace": {
			[]auth.Option{auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-b", Name: "thief"}),
				auth.WithServiceAccount(key, offline{t: t})},
			auth.ErrDenied, []string{`"tenant-a"`, `"tenant-b"`, `Bucket "thief"`}},
		"involved object of another namespace": {
			[]auth.Option{auth.WithCache(nil, cache.InvolvedObject{Namespace: "tenant-b", Name: "thief"}),
				auth.WithServiceAccount(key, offline{t: t})},
			auth.ErrDenied, []string{`"tenant-b"`}},
		"audience that the controller does not list": {with(auth.WithAudiences("vault")), auth.ErrDenied,
			[]string{`"vault"`, "Policy.Audiences"}},
		"audience beside those that the controller lists": {with(auth.WithAudiences("vault"),
			auth.WithPolicy(auth.Policy{Audiences: []string{"bank"}})), auth.ErrDenied, []string{`"vault"`}},
		"empty audience":  {with(auth.WithAudiences("")), auth.ErrMisconfigured, []string{"audience is empty"}},
		"empty scope":     {with(auth.WithScopes("")), auth.ErrMisconfigured, []string{"scope is empty"}},
		"lifetime of 1 m": {with(auth.WithTokenLifetime(time.Minute)), auth.ErrMisconfigured, []string{"1m0s", "10m"}},
		"negative life":   {with(auth.WithTokenLifetime(-time.Hour)), auth.ErrMisconfigured, []string{"-1h0m0s"}},
		"proxy of FTP": {with(auth.WithProxyURL(url.URL{Scheme: "ftp", Host: "h", User: url.UserPassword("u", "hunter2")})),
			auth.ErrMisconfigured, []string{`"ftp"`, "socks5://"}},
		"proxy without a host": {with(auth.WithProxyURL(url.URL{Scheme: "http"})), auth.ErrMisconfigured, []string{"proxy"}},
		"proxy and client": {with(auth.WithProxyURL(url.URL{Scheme: "http", Host: "h"}), auth.WithHTTPClient(&http.Client{})),
			auth.ErrMisconfigured, []string{"exclude each other"}},
		"gate is off": {with(auth.WithSettings(&auth.Settings{})), auth.ErrMisconfigured,
			[]string{"ObjectLevelWorkloadIdentity"}},
		"token and client": {with(auth.WithSubjectToken(auth.NewStaticTokenSource("t"), subject)), auth.ErrMisconfigured,
			[]string{"WithSubjectToken"}},
		"no token source": {[]auth.Option{auth.WithSubjectToken(nil, subject)}, auth.ErrMisconfigured,
			[]string{"source of subject tokens is nil"}},
		"empty token": {[]auth.Option{auth.WithSubjectToken(auth.NewStaticTokenSource(""), subject)},
			auth.ErrMisconfigured, []string{"subject token is empty"}},
		"default account without an owner": {[]auth.Option{auth.WithClient(offline{t: t}),
			auth.WithSettings(&auth.Settings{ObjectLevelWorkloadIdentity: true, DefaultServiceAccount: "def"})},
			auth.ErrMisconfigured, []string{`"def"`, "WithOwner"}},
		"default account without a client": {
			[]auth.Option{owner,
				auth.WithSettings(&auth.Settings{ObjectLevelWorkloadIdentity: true, DefaultServiceAccount: "def"})},
			auth.ErrMisconfigured, []string{"client is nil"}},
		"default account with the gate off": {[]auth.Option{owner, auth.WithClient(offline{t: t}),
			auth.WithSettings(&auth.Settings{DefaultServiceAccount: "def"})},
			auth.ErrMisconfigured, []string{`the default ServiceAccount for access tokens is "def"`,
				"ObjectLevelWorkloadIdentity", "auth.Settings.DefaultServiceAccount"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := auth.GetAccessToken(t.Context(), silent{t}, tc.opts...)
			testenv.CheckError(t, err, tc.reason, tc.want...)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password shows: %v", err)
			}
			var e *auth.Error
			if gate := strings.Contains(err.Error(), "ObjectLevelWorkloadIdentity"); gate &&
				(!errors.As(err, &e) || e.Cause != "FeatureGateOff") {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestNilProvider(t *testing.T) {
	_, err := auth.GetAccessToken(t.Context(), nil)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "the provider is nil")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if _, err := auth.GetClusterConfig(gone, nil); err == nil {
			t.Fatal("it has a cluster")
		}
	}
}

// The hook hears everything that a decision could need, for the controller's
// own identity too, and its word is final.
func TestAuthorizeHook(t *testing.T) {
	var got auth.AuthorizeRequest
	policy := auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
		got = r
		return fmt.Errorf("tenants of %q may not", r.Owner.Namespace)
	}})
	owner := cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b", Operation: "fetch"}
	_, err := auth.GetAccessToken(t.Context(), silent{t}, auth.WithOwner(owner), policy)
	testenv.CheckError(t, err, auth.ErrDenied, `tenants of "tenant-a" may not`)
	if got.Provider != "silent" || got.Owner != owner || got.ServiceAccount != (client.ObjectKey{}) {
		t.Errorf("the hook saw %+v", got)
	}
}

func TestSettingsFlagsAndValidation(t *testing.T) {
	if err := (&auth.Settings{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	for name, s := range map[string]*auth.Settings{
		"default without gate":    {DefaultServiceAccount: "a"},
		"kubeconfig without gate": {DefaultKubeConfigServiceAccount: "a"},
		"namespace in the name":   {ObjectLevelWorkloadIdentity: true, DefaultDecryptionServiceAccount: "ns/a"},
	} {
		if err := s.Validate(); !errors.Is(err, auth.ErrMisconfigured) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFlags(t *testing.T) {
	var s auth.Settings
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	s.BindFlags(fs)
	err := fs.Parse([]string{"--feature-gates=ObjectLevelWorkloadIdentity=true", "--default-service-account=a",
		"--default-kubeconfig-service-account=b", "--default-decryption-service-account=c", "--token-cache-max-size=10",
		"--token-cache-max-duration=10m",
		"--token-minimum-lifetime=5m"})
	want := auth.Settings{ObjectLevelWorkloadIdentity: true, DefaultServiceAccount: "a",
		DefaultKubeConfigServiceAccount: "b",
		DefaultDecryptionServiceAccount: "c", MinimumLifetime: 5 * time.Minute,
		TokenCache: cache.Flags{MaxSize: 10, MaxDuration: 10 * time.Minute}}
	if err != nil || s != want || s.Validate() != nil {
		t.Errorf("got %+v, %v, %v", s, err, s.Validate())
	}
	for _, arg := range []string{"--feature-gates=Other=true", "--feature-gates=ObjectLevelWorkloadIdentity=perhaps",
		"--token-cache-max-size=x"} {
		if err := fs.Parse([]string{arg}); err == nil {
			t.Errorf("%s was accepted", arg)
		}
	}
	negative := cache.Flags{MaxDuration: -1}
	if negative.Validate() == nil {
		t.Errorf("%+v was accepted", negative)
	}
	if _, err := negative.New(); err == nil {
		t.Errorf("%+v makes a cache", negative)
	}
	if err := (&auth.Settings{MinimumLifetime: -1}).Validate(); !errors.Is(err, auth.ErrMisconfigured) {
		t.Errorf("a negative minimum: %v", err)
	}
	// A controller with feature gates of its own keeps its flag.
	own := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	own.Bool("feature-gates", false, "")
	s.BindFlags(own)
}

// A controller binds the flags that it has a use for.
func TestFlagsOfAController(t *testing.T) {
	var s auth.Settings
	some, all := pflag.NewFlagSet("some", pflag.ContinueOnError), pflag.NewFlagSet("all", pflag.ContinueOnError)
	s.BindFlags(some, auth.FlagDefaultServiceAccount, cache.FlagMaxSize)
	s.BindFlags(all)
	names := func(fs *pflag.FlagSet) (names []string) {
		fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return names
	}
	if got := names(some); !slices.Equal(got, []string{auth.FlagDefaultServiceAccount, cache.FlagMaxSize}) {
		t.Errorf("got %q", got)
	}
	want := []string{auth.FlagDefaultDecryptionServiceAccount, auth.FlagDefaultKubeConfigServiceAccount,
		auth.FlagDefaultServiceAccount, auth.FlagFeatureGates,
		cache.FlagMaxDuration, cache.FlagMaxSize, auth.FlagMinimumLifetime}
	if got := names(all); !slices.Equal(got, want) || s.MinimumLifetime != auth.DefaultMinimumLifetime {
		t.Errorf("got %q, %s", got, s.MinimumLifetime)
	}
	defer func() {
		if recover() == nil {
			t.Error("a flag that does not exist is accepted")
		}
	}()
	s.BindFlags(pflag.NewFlagSet("typo", pflag.ContinueOnError), "default-service-acount")
}

func TestProviderSet(t *testing.T) {
	set, err := auth.NewProviderSet(silent{t})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := set.Get("silent"); err != nil || p.GetName() != "silent" {
		t.Errorf("Get: %v, %v", p, err)
	}
	_, err = set.Get("aws")
	testenv.CheckError(t, err, auth.ErrMisconfigured, `"aws"`, "silent")
	_, err = set.Get("")
	testenv.CheckError(t, err, auth.ErrMisconfigured, `""`)
	_, err = auth.NewProviderSet(silent{t}, silent{t})
	testenv.CheckError(t, err, auth.ErrMisconfigured, `"silent"`)
	_, err = auth.NewProviderSet(nil)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "nil")
}

// A refused proxy is dialled by no call, whatever is cached.
func TestPolicyDecidesAboutProxies(t *testing.T) {
	k8s, provider, tokens := newCluster(), &exchange{}, testenv.Cache(t)
	key := k8s.create("tenant-a", "app", nil)
	at := func(host string) auth.Option {
		return auth.WithProxyURL(url.URL{Scheme: "http", Host: host, User: url.UserPassword("u", "hunter2")})
	}
	refuse := auth.WithPolicy(auth.Policy{AllowProxy: func(owner cache.InvolvedObject, proxy url.URL) bool {
		return owner.Namespace == "tenant-a" && proxy.Hostname() == "proxy.example"
	}})
	for name, identity := range map[string][]auth.Option{
		"ServiceAccount": {auth.WithServiceAccount(key, k8s), testenv.WithCache(tokens, "tenant-a")},
		"controller":     {testenv.WithCache(tokens, "tenant-a")},
	} {
		t.Run(name, func(t *testing.T) {
			mustGet(t, provider, append(identity, at("vault.internal:8200"))...)
			mustGet(t, provider, append(identity, at("proxy.example:3128"), refuse)...)
			mustGet(t, provider, append(identity, refuse)...)
			_, err := auth.GetAccessToken(t.Context(), provider, append(identity, at("vault.internal:8200"), refuse)...)
			testenv.CheckError(t, err, auth.ErrDenied, `"vault.internal:8200"`, "Policy.AllowProxy")
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password shows: %v", err)
			}
		})
	}
	_, err := auth.GetAccessToken(t.Context(), silent{t}, auth.WithServiceAccount(key, offline{t: t}),
		testenv.Owner("tenant-a"), at("vault.internal:8200"), refuse)
	testenv.CheckError(t, err, auth.ErrDenied, "Policy.AllowProxy")
}

// A source that has found its place in the cache still asks.
func TestPolicyDecidesAboutProxiesOfSources(t *testing.T) {
	allowed := true
	source := auth.NewAccessTokenSource(&exchange{}, testenv.Cached(t, "tenant-a"),
		auth.WithProxyURL(url.URL{Scheme: "http", Host: "proxy.example"}),
		auth.WithPolicy(auth.Policy{AllowProxy: func(cache.InvolvedObject, url.URL) bool { return allowed }}))
	if _, err := source.Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	allowed = false
	_, err := source.Token(t.Context())
	testenv.CheckError(t, err, auth.ErrDenied, "Policy.AllowProxy")
}
