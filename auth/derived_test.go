package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// clouds is a provider with registries, clusters and Git repositories below
// example.com.
type clouds struct {
	*exchange
	derived  atomic.Int64
	lists    [][]provider.Option // for clusters
	newToken func(kind string, from []auth.Token) error
	gitURL   *url.URL // as ParseGitRepository got it last
}

func newClouds() *clouds {
	return &clouds{exchange: &exchange{}, lists: [][]provider.Option{{scope("cluster")}}}
}

func below(host string) error {
	if host == "example.com" || strings.HasSuffix(host, ".example.com") {
		return nil
	}
	return &auth.Error{Reason: auth.ErrMisconfigured, Message: fmt.Sprintf("%q is not below example.com", host)}
}

func scope(name string) provider.Option {
	return func(o *provider.Options) { o.Scopes = []string{name} }
}

func (c *clouds) ParseArtifactRepository(repository string, _ *provider.Options) (string, error) {
	host, err := provider.RegistryHost(repository)
	if err != nil {
		return "", err
	}
	return host, below(host)
}

func (c *clouds) GetAccessTokenOptionsForArtifactRepository(string, *provider.Options) ([]provider.Option, error) {
	return []provider.Option{scope("registry")}, nil
}

// make names what the credential is made of, so that tests see a mix-up.
func (c *clouds) make(kind string, tokens []auth.Token, opts *provider.Options) (string, time.Time, error) {
	c.derived.Add(1)
	if c.newToken != nil {
		if err := c.newToken(kind, tokens); err != nil {
			return "", time.Time{}, err
		}
	}
	var from []string
	for _, t := range tokens {
		tag, ok := t.(*tagged)
		if !ok {
			return "", time.Time{}, fmt.Errorf("got a %T", t)
		}
		from = append(from, fmt.Sprintf("%s#%d", tag.subject, tag.serial))
	}
	return fmt.Sprintf("%s[%s](%s)", kind, strings.Join(from, " "), strings.Join(opts.Scopes, " ")),
		time.Now().Add(time.Hour), nil
}

func (c *clouds) NewArtifactRegistryCredentials(_ context.Context, input string, token auth.Token,
	opts *provider.Options,
) (*auth.ArtifactRegistryCredentials, error) {
	made, end, err := c.make("registry "+input, []auth.Token{token}, opts)
	if err != nil {
		return nil, err
	}
	return provider.NewArtifactRegistryCredentials("user", made, end), nil
}

func (c *clouds) GetAccessTokenOptionsForCluster(opts *provider.Options) (provider.ClusterAccess, error) {
	if strings.ContainsAny(opts.ClusterResource, " ") {
		return provider.ClusterAccess{},
			&auth.Error{Reason: auth.ErrMisconfigured, Message: fmt.Sprintf("%q is not a cluster", opts.ClusterResource)}
	}
	return provider.ClusterAccess{AccessTokens: c.lists}, nil
}

func (c *clouds) NewRESTConfig(_ context.Context, tokens []auth.Token,
	opts *provider.Options) (*auth.RESTConfig, error) {
	made, end, err := c.make("cluster "+opts.ClusterResource, tokens, opts)
	if err != nil {
		return nil, err
	}
	host := opts.ClusterAddress
	if host == "" {
		host = "https://Cluster.example.com"
	}
	return provider.NewRESTConfig(host, made, []byte(opts.CAData), end), nil
}

func (c *clouds) ParseGitRepository(u *url.URL, _ *provider.Options) (string, error) {
	c.gitURL = u
	return u.Host, below(u.Host)
}

func (c *clouds) GetAccessTokenOptionsForGitRepository(string, *provider.Options) ([]provider.Option, error) {
	return nil, nil
}

func (c *clouds) NewGitCredentials(_ context.Context, input string, token auth.Token,
	opts *provider.Options) (*auth.GitCredentials, error) {
	made, end, err := c.make("git "+input, []auth.Token{token}, opts)
	if err != nil {
		return nil, err
	}
	return provider.NewGitBearerCredentials(made, end), nil
}

// Azure DevOps puts the organization into clone URLs as a user name.
func TestUserNameOfAGitURLIsIgnored(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	opts := []auth.Option{auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
		testenv.Cached(t, "tenant-a")}
	var first *auth.GitCredentials
	for _, text := range []string{"https://example.com/org/_git/x", "https://org@example.com/org/_git/x",
		"https://@example.com/org/_git/x"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := auth.GetGitCredentials(t.Context(), provider, append(opts, auth.WithGitURL(*u))...)
		if err != nil || provider.gitURL.User != nil || first != nil && got != first {
			t.Errorf("%s: %v, %v, the provider saw %v", text, got, err, provider.gitURL)
		}
		first = got
	}
}

// password returns what the credential is made of.
func password(t *testing.T, c *auth.ArtifactRegistryCredentials, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.Authorization()
	if err != nil {
		t.Fatal(err)
	}
	return config.Password
}

// A cached derived credential costs a lookup and a read of the ServiceAccount.
// Its access token is cached too and shared.
func TestDerivedCredentialsAreCached(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	key := k8s.create("tenant-a", "app", nil)
	opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a")}
	gitURL, _ := url.Parse("https://git.example.com/repo")
	for range 3 {
		creds, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "r.example.com/a/b", opts...)
		if got := password(t, creds, err); got != "registry r.example.com[tenant-a/app#1](registry)" {
			t.Errorf("registry: %s", got)
		}
		// The same registry, whatever the repository.
		again, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "R.example.com", opts...)
		if err != nil || again != creds {
			t.Errorf("other repository: %v, %v", again, err)
		}
		git, err := auth.GetGitCredentials(t.Context(), provider, append(opts, auth.WithGitURL(*gitURL))...)
		if err != nil || git.BearerToken() != "git git.example.com[tenant-a/app#2]()" {
			t.Errorf("git: %v, %v", git, err)
		}
		config, err := auth.GetRESTConfig(t.Context(), provider, append(opts, auth.WithClusterResource("c1"))...)
		if err != nil || config.BearerToken() != "cluster c1[tenant-a/app#3](cluster)" ||
			config.Host() != "https://cluster.example.com:443" {
			t.Errorf("cluster: %v, %v", config, err)
		}
		token := mustGet(t, provider, append(opts, auth.WithScopes("cluster"))...)
		if token.serial != 3 {
			t.Errorf("the access token was minted again: %d", token.serial)
		}
	}
	if n, m, r := provider.mints.Load(), provider.derived.Load(), k8s.requests.Load(); n != 3 || m != 3 || r != 3 {
		t.Errorf("%d access tokens, %d credentials, %d TokenRequests", n, m, r)
	}
	// Each call read the ServiceAccount once; each of the three first ones once
	// more for nothing.
	if reads := k8s.reads.Load(); reads != 15 {
		t.Errorf("%d reads in 15 calls", reads)
	}
	k8s.remove(key)
	if _, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "r.example.com/a/b", opts...); !errors.Is(err,
		auth.ErrMisconfigured) {
		t.Errorf("without the ServiceAccount: %v", err)
	}
}

// Whatever differs in the question differs in the answer.
func TestDerivedKeys(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	a, b := k8s.create("tenant-a", "app", nil), k8s.create("tenant-b", "app", nil)
	tokens := testenv.Cache(t)
	seen := map[string]string{}
	note := func(name, got string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, dup := seen[got]; dup {
			t.Errorf("%s got the credential of %s: %s", name, other, got)
		}
		seen[got] = name
	}
	for name, opts := range map[string][]auth.Option{
		"a": {auth.WithServiceAccount(a, k8s), testenv.WithCache(tokens, "tenant-a")},
		"b": {auth.WithServiceAccount(b, k8s), testenv.WithCache(tokens, "tenant-b")},
		"-": {testenv.WithCache(tokens, "tenant-a"),
			auth.WithPolicy(auth.Policy{AllowCluster: func(auth.ClusterRequest) bool { return true }})},
	} {
		for _, host := range []string{"example.com", "x.example.com"} {
			creds, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, host, opts...)
			note(name+" registry "+host, password(t, creds, err), err)
			git, err := auth.GetGitCredentials(t.Context(), provider,
				append(opts, auth.WithGitURL(url.URL{Scheme: "https", Host: host}))...)
			note(name+" git "+host, git.BearerToken(), err)
			config, err := auth.GetRESTConfig(t.Context(), provider, append(opts, auth.WithClusterResource(host))...)
			note(name+" cluster "+host, config.BearerToken()+config.Host(), err)
			config, err = auth.GetRESTConfig(t.Context(), provider,
				append(opts, auth.WithClusterResource(host), auth.WithClusterAddress("https://x"))...)
			note(name+" cluster at x "+host, config.BearerToken()+config.Host(), err)
		}
	}
}

func TestDerivedRefusals(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	key := k8s.create("tenant-a", "app", nil)
	with := func(more ...auth.Option) []auth.Option {
		return append([]auth.Option{auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a")}, more...)
	}
	registry := func(repository string) func() error {
		return func() error {
			_, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, repository, with()...)
			return err
		}
	}
	git := func(address string) func() error {
		return func() error {
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			_, err = auth.GetGitCredentials(t.Context(), provider, with(auth.WithGitURL(*u))...)
			return err
		}
	}
	clusterOf := func(opts ...auth.Option) func() error {
		return func() error {
			_, err := auth.GetRESTConfig(t.Context(), provider, with(opts...)...)
			return err
		}
	}
	for name, tc := range map[string]struct {
		call func() error
		want string
	}{
		"other registry": {registry("docker.io/x"), `"docker.io"`},
		"look-alike":     {registry("evil-example.com/x"), `"evil-example.com"`},
		"scheme":         {registry("oci://r.example.com/x"), "without a scheme"},
		"user":           {registry("u@r.example.com/x"), "artifact repository"},
		"empty":          {registry(""), "artifact repository"},
		"backslash":      {registry(`r.example.com\@evil.com/x`), "artifact repository"},
		"trailing dot":   {registry("r.example.com./x"), "artifact repository"},
		"no port":        {registry("r.example.com:/x"), "artifact repository"},
		"no Git URL": {func() error {
			_, err := auth.GetGitCredentials(t.Context(), provider, with()...)
			return err
		}, "WithGitURL"},
		"ssh":          {git("ssh://git@example.com/x"), `"ssh"`},
		"http":         {git("http://example.com/x"), `"http"`},
		"Git password": {git("https://u:p4ssword@example.com/x"), "a user name and a password"},
		"Git query":    {git("https://example.com/x?y"), "query"},
		"Git host":     {git("https://evil.com/x"), `"evil.com"`},
		"no cluster":   {clusterOf(), "neither"},
		"all three": {clusterOf(auth.WithClusterResource("c"), auth.WithClusterAddress("h"),
			auth.WithCAData("-----BEGIN CERTIFICATE-----")), "all set"},
		"only a CA":     {clusterOf(auth.WithCAData("x")), "neither"},
		"not a cluster": {clusterOf(auth.WithClusterResource("c c")), `"c c"`},
		"CA is not PEM": {clusterOf(auth.WithClusterResource("c"), auth.WithCAData("x")), "no PEM certificate"},
		"CA is a key": {clusterOf(auth.WithClusterResource("c"),
			auth.WithCAData("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----")), "malformed"},
		"CA is huge": {clusterOf(auth.WithClusterResource("c"),
			auth.WithCAData("-----BEGIN CERTIFICATE-----"+strings.Repeat("x", 64<<10))), "at most 65536"},
		"address is huge":   {clusterOf(auth.WithClusterAddress("https://h/" + strings.Repeat("x", 2048))), "at most 2048"},
		"address of http":   {clusterOf(auth.WithClusterAddress("http://h")), "https"},
		"address with user": {clusterOf(auth.WithClusterAddress("https://u:p4ssword@h")), "user name"},
		"registries unknown": {func() error {
			_, err := auth.GetArtifactRegistryCredentials(t.Context(), &exchange{}, "r", with()...)
			return err
		}, "no artifact registries"},
		"clusters unknown": {func() error {
			_, err := auth.GetRESTConfig(t.Context(), &exchange{}, with()...)
			return err
		}, "no access to clusters"},
		"git unknown": {func() error {
			_, err := auth.GetGitCredentials(t.Context(), &exchange{}, with()...)
			return err
		}, "no Git repositories"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.call()
			if !errors.Is(err, auth.ErrMisconfigured) || !strings.Contains(err.Error(), tc.want) ||
				!strings.Contains(err.Error(), "tenant-a/app") {
				t.Errorf("got %v", err)
			}
			if strings.Contains(err.Error(), "p4ssword") {
				t.Error("the error holds the password")
			}
		})
	}
	if provider.mints.Load() != 0 || k8s.requests.Load() != 0 {
		t.Error("tokens were requested")
	}
}

// Exchanges that wait for other flights hold no slot: with one slot, everything
// still ends.
func TestDerivedFlightsDoNotBlockEachOther(t *testing.T) { synctest.Test(t, testDerivedFlights) }

func testDerivedFlights(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	key := k8s.create("tenant-a", "app", nil)
	tokens := testenv.Cache(t, cache.WithMaxExchangesPerTenant(1))
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			_, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, fmt.Sprintf("r%d.example.com", n),
				auth.WithServiceAccount(key, k8s), testenv.WithCache(tokens, "tenant-a"))
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := provider.mints.Load(); n != 1 {
		t.Errorf("%d access tokens", n)
	}
}

// Errors of either step name everything, and none makes a nil credential look
// like one.
func TestDerivedErrors(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	key := k8s.create("tenant-a", "app", nil)
	for _, tokens := range []*cache.TokenCache{nil, testenv.Cache(t)} {
		opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.WithCache(tokens, "tenant-a")}
		provider.newToken = func(string, []auth.Token) error {
			return &auth.Error{Reason: auth.ErrDenied, Message: "no pull rights"}
		}
		creds, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "r.example.com", opts...)
		if creds != nil || !errors.Is(err, auth.ErrDenied) ||
			err.Error() != `exchange: ServiceAccount "tenant-a/app": get artifact registry credentials: denied: no pull rights` {
			t.Errorf("got %v, %v", creds, err)
		}
		provider.newToken = nil
		k8s.requestErr = errors.New("boom")
		if creds, err := auth.GetRESTConfig(t.Context(), provider,
			append(opts, auth.WithClusterResource("c"))...); creds != nil || !errors.Is(err, auth.ErrUnavailable) ||
			!strings.Contains(err.Error(), "boom") {
			t.Errorf("got %v, %v", creds, err)
		}
		k8s.requestErr = nil
	}
}

// The controller's own identity is used for a cluster on behalf of an object
// only if Policy.AllowCluster allows that cluster.
func TestAllowCluster(t *testing.T) {
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", nil)
	owned := auth.WithOwner(cache.InvolvedObject{Kind: "Kustomization", Namespace: "tenant-a", Name: "k"})
	address, name := auth.WithClusterAddress("https://Cluster.example"), auth.WithClusterResource("c")
	ca := auth.WithCAData(string(testenv.Cloud(t).CA()))
	for text, tc := range map[string]struct {
		opts  []auth.Option
		bound bool
		want  *auth.ClusterRequest // nil if the Policy is not asked
		error string
	}{
		"resource": {opts: []auth.Option{owned, name}, want: &auth.ClusterRequest{Resource: "c"},
			error: `the cluster "c";`},
		"resource and address": {opts: []auth.Option{owned, name, address},
			want:  &auth.ClusterRequest{Resource: "c", Address: "https://cluster.example:443"},
			error: `the cluster "c" at "https://cluster.example:443";`},
		"resource and CA": {opts: []auth.Option{owned, name, ca},
			want: &auth.ClusterRequest{Resource: "c", CAFromObject: true}, error: `the cluster "c" with CA data of the object;`},
		"address": {opts: []auth.Option{owned, address},
			want:  &auth.ClusterRequest{Address: "https://cluster.example:443"},
			error: `the cluster at "https://cluster.example:443";`},
		"address and CA": {opts: []auth.Option{owned, address, ca},
			want:  &auth.ClusterRequest{Address: "https://cluster.example:443", CAFromObject: true},
			error: "with CA data of the object;"},
		"involved object": {
			opts: []auth.Option{auth.WithCache(nil,
				cache.InvolvedObject{Kind: "Kustomization", Namespace: "tenant-a", Name: "k"}), name},
			want: &auth.ClusterRequest{Resource: "c"}, error: `"c"`},
		"ServiceAccount": {opts: []auth.Option{owned, address, ca, auth.WithServiceAccount(key, k8s)}},
		"default ServiceAccount": {opts: []auth.Option{owned, address, auth.WithClient(k8s),
			auth.WithSettings(&auth.Settings{ObjectLevelWorkloadIdentity: true, DefaultKubeConfigServiceAccount: "app"})}},
		"cluster-bound token": {opts: []auth.Option{owned, address}, bound: true},
		"no owner":            {opts: []auth.Option{address, ca}},
	} {
		t.Run(text, func(t *testing.T) {
			clouds := newClouds()
			var provider auth.Provider = clouds
			if tc.bound {
				provider = boundClouds{clouds}
			}
			_, err := auth.GetRESTConfig(t.Context(), provider, tc.opts...)
			if tc.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			testenv.CheckError(t, err, auth.ErrDenied, "Policy.AllowCluster", `Kustomization "k"`, tc.error)
			if clouds.controller.Load() != 0 {
				t.Error("an access token was made")
			}
			tc.want.Owner = cache.InvolvedObject{Kind: "Kustomization", Namespace: "tenant-a", Name: "k"}
			var asked []auth.ClusterRequest
			policy := auth.WithPolicy(auth.Policy{AllowCluster: func(r auth.ClusterRequest) bool {
				asked = append(asked, r)
				return true
			}})
			if _, err := auth.GetRESTConfig(t.Context(), provider, append(tc.opts, policy)...); err != nil {
				t.Error(err)
			}
			if !slices.Equal(asked, []auth.ClusterRequest{*tc.want}) {
				t.Errorf("the Policy was asked about %+v, want %+v", asked, *tc.want)
			}
		})
	}
}

// boundClouds mints access tokens that only the one cluster accepts.
type boundClouds struct{ *clouds }

func (b boundClouds) GetAccessTokenOptionsForCluster(opts *provider.Options) (provider.ClusterAccess, error) {
	access, err := b.clouds.GetAccessTokenOptionsForCluster(opts)
	access.OneCluster = true
	return access, err
}

// AllowCluster is asked about cached credentials too.
func TestAllowClusterOnHits(t *testing.T) {
	provider, allowed := newClouds(), true
	opts := []auth.Option{testenv.Cached(t, "tenant-a"), auth.WithClusterResource("c"),
		auth.WithPolicy(auth.Policy{AllowCluster: func(auth.ClusterRequest) bool { return allowed }})}
	for _, allowed = range []bool{true, false} {
		config, err := auth.GetRESTConfig(t.Context(), provider, opts...)
		if allowed != (err == nil) || allowed != (config != nil) || err != nil && !errors.Is(err, auth.ErrDenied) {
			t.Errorf("allowed %t: got %v, %v", allowed, config, err)
		}
	}
}

// accessClouds overrides what clouds says of access to a cluster.
type accessClouds struct {
	*clouds
	access provider.ClusterAccess
}

func (a *accessClouds) GetAccessTokenOptionsForCluster(*provider.Options) (provider.ClusterAccess, error) {
	return a.access, nil
}

// ClusterAccess.CacheKey separates configs that share their access token.
func TestClusterAccessCacheKey(t *testing.T) {
	p := &accessClouds{clouds: newClouds()}
	opts := []auth.Option{auth.WithCache(testenv.Cache(t), cache.InvolvedObject{}), auth.WithClusterResource("c")}
	var seen []*auth.RESTConfig
	for _, key := range []string{"", "a", "b", "a"} {
		p.access = provider.ClusterAccess{AccessTokens: make([][]provider.Option, 1), CacheKey: key}
		config, err := auth.GetRESTConfig(t.Context(), p, opts...)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, config)
	}
	if seen[0] == seen[1] || seen[1] == seen[2] || seen[1] != seen[3] || p.controller.Load() != 1 {
		t.Errorf("got %p, with %d access tokens", seen, p.controller.Load())
	}
}

// Only a provider that says so takes cluster, address and CA data together.
func TestClusterAccessTakesAll(t *testing.T) {
	p := &accessClouds{clouds: newClouds()}
	for _, all := range []bool{true, false} {
		p.access = provider.ClusterAccess{AccessTokens: make([][]provider.Option, 1), TakesAll: all}
		_, err := auth.GetRESTConfig(t.Context(), p, auth.WithClusterResource("c"), auth.WithClusterAddress("https://h"),
			auth.WithCAData(string(testenv.Cloud(t).CA())))
		if all == errors.Is(err, auth.ErrMisconfigured) || all != (err == nil) {
			t.Errorf("TakesAll %t: %v", all, err)
		}
	}
}
