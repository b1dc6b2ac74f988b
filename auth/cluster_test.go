package auth_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// apiServer is a remote cluster that accepts some bearer tokens.
type apiServer struct {
	mu      sync.Mutex
	accepts func(bearer string) bool
	bearers []string
}

func (a *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	a.bearers = append(a.bearers, bearer)
	status := http.StatusOK
	if a.accepts != nil && !a.accepts(bearer) {
		status = http.StatusUnauthorized
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// clusterClient returns what client-go sends requests with, above the remote
// cluster.
func clusterClient(t *testing.T, config *rest.Config, server http.RoundTripper) http.RoundTripper {
	t.Helper()
	rt, err := rest.HTTPWrappersForConfig(config, server)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func request(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eachCache runs a test in a bubble, with a cache and without one.
func eachCache(t *testing.T, test func(t *testing.T, tokens *cache.TokenCache)) {
	t.Run("with a cache", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, testenv.Cache(t)) })
	})
	t.Run("without a cache", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, nil) })
	})
}

// The credential of a config is renewed while the config is in use: before it
// expires, and after the cluster has refused it.
func TestClusterConfigRenewsItself(t *testing.T) {
	eachCache(t, func(t *testing.T, tokens *cache.TokenCache) {
		k8s, provider, server := newCluster(), newClouds(), &apiServer{}
		key := k8s.create("tenant-a", "app", nil)
		config, err := auth.GetClusterConfig(t.Context(), provider, auth.WithServiceAccount(key, k8s),
			testenv.WithCache(tokens, "tenant-a"), auth.WithClusterResource("c"))
		if err != nil || config.Host != "https://cluster.example.com:443" || config.BearerToken != "" {
			t.Fatalf("got %+v, %v, want https://cluster.example.com:443 without a bearer token", config, err)
		}
		client := clusterClient(t, config, server)
		do := func() (int, string) {
			r := request(t.Context(), t, config.Host+"/api")
			resp, err := client.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Get("Authorization") != "" {
				t.Error("the caller's request was changed")
			}
			return resp.StatusCode, server.bearers[len(server.bearers)-1]
		}
		_, first := do()
		if _, again := do(); again != first || !strings.HasPrefix(first, "cluster c[tenant-a/app#1]") {
			t.Errorf("the first requests brought %q and %q", first, again)
		}
		time.Sleep(59 * time.Minute)
		do()
		synctest.Wait()
		_, second := do()
		if second == first {
			t.Error("the credential was not renewed")
		}
		// After a 401 the underlying access token is renewed too.
		time.Sleep(11 * time.Second)
		server.accepts = func(bearer string) bool { return bearer != second }
		if status, _ := do(); status != http.StatusUnauthorized {
			t.Errorf("status %d", status)
		}
		status, third := do()
		if status != http.StatusOK || third == second {
			t.Errorf("after a refusal: status %d with %q", status, third)
		}
		// A cluster that refuses everything does not cause an exchange for each
		// request.
		server.accepts = func(string) bool { return false }
		before := provider.mints.Load()
		for range 50 {
			do()
		}
		if n := provider.mints.Load() - before; n > 1 {
			t.Errorf("%d exchanges for 50 refusals in a moment", n)
		}
	})
}

// A request waits for a new credential when the old one is valid for less than
// WithMinimumLifetime.
func TestClusterConfigHonoursMinimumLifetime(t *testing.T) {
	eachCache(t, func(t *testing.T, tokens *cache.TokenCache) {
		k8s, provider, server := newCluster(), newClouds(), &apiServer{}
		config, err := auth.GetClusterConfig(t.Context(), provider,
			auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
			testenv.WithCache(tokens, "tenant-a"), auth.WithClusterResource("c"), auth.WithMinimumLifetime(30*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		client := clusterClient(t, config, server)
		for _, after := range []time.Duration{0, 29 * time.Minute, 2 * time.Minute} {
			time.Sleep(after)
			if _, err := client.RoundTrip(request(t.Context(), t, config.Host)); err != nil { //nolint:bodyclose // it is empty
				t.Fatal(err)
			}
		}
		if b := server.bearers; b[1] != b[0] || b[2] == b[0] {
			t.Errorf("the cluster received %q", b)
		}
	})
}

// Each request checks Policy and ServiceAccount, with and without a cache,
// although the credential is still valid.
func TestClusterConfigChecksEveryRequest(t *testing.T) {
	eachCache(t, func(t *testing.T, tokens *cache.TokenCache) {
		k8s, provider, server := newCluster(), newClouds(), &apiServer{}
		key := k8s.create("tenant-a", "app", nil)
		var refusal error
		config, err := auth.GetClusterConfig(t.Context(), provider, auth.WithServiceAccount(key, k8s),
			auth.WithClusterResource("c"), testenv.WithCache(tokens, "tenant-a"), auth.WithPolicy(auth.Policy{
				Authorize: func(context.Context, auth.AuthorizeRequest) error { return refusal }}))
		if err != nil {
			t.Fatal(err)
		}
		client := clusterClient(t, config, server)
		do := func() error {
			resp, err := client.RoundTrip(request(t.Context(), t, config.Host))
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		for range 3 {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		if n := provider.mints.Load(); n != 1 {
			t.Errorf("%d exchanges for three requests", n)
		}
		refusal = errors.New("no longer")
		testenv.CheckError(t, do(), auth.ErrDenied, "no longer")
		refusal = nil
		k8s.annotate(key, map[string]string{"identity": "malformed"})
		testenv.CheckError(t, do(), auth.ErrMisconfigured, "malformed")
		k8s.annotate(key, map[string]string{"identity": "other"})
		if err := do(); err != nil || provider.mints.Load() != 2 {
			t.Errorf("after a new annotation: %v, %d exchanges", err, provider.mints.Load())
		}
		k8s.remove(key)
		testenv.CheckError(t, do(), auth.ErrMisconfigured, "tenant-a/app", "not found")
		if len(server.bearers) != 4 {
			t.Errorf("the cluster received %q", server.bearers)
		}
	})
}

// Without a cache, AllowCluster is asked for each request.
func TestClusterConfigAsksAllowCluster(t *testing.T) {
	provider, server, allowed := newClouds(), &apiServer{}, true
	config, err := auth.GetClusterConfig(t.Context(), provider, testenv.Owner("tenant-a"),
		auth.WithClusterResource("c"),
		auth.WithPolicy(auth.Policy{AllowCluster: func(auth.ClusterRequest) bool { return allowed }}))
	if err != nil {
		t.Fatal(err)
	}
	allowed = false
	_, err = clusterClient(t, config,
		server).RoundTrip(request(t.Context(), t, config.Host)) //nolint:bodyclose // there is none
	testenv.CheckError(t, err, auth.ErrDenied, "Policy.AllowCluster")
}

// Without a cache, simultaneous requests share one exchange, and a request ends
// with its own context while it waits.
func TestClusterConfigWithoutCacheMakesOneExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider, server := newCluster(), newClouds(), &apiServer{}
		key := k8s.create("tenant-a", "app", nil)
		config, err := auth.GetClusterConfig(t.Context(), provider, auth.WithServiceAccount(key, k8s),
			testenv.Owner("tenant-a"), auth.WithClusterResource("c"))
		if err != nil {
			t.Fatal(err)
		}
		provider.mint = func(context.Context, string) (auth.Token, error) {
			time.Sleep(20 * time.Second)
			return provider.token("tenant-a/app", ""), nil
		}
		client := clusterClient(t, config, server)
		time.Sleep(time.Hour)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := client.RoundTrip(request(t.Context(), t, config.Host)); err != nil { //nolint:bodyclose // it is empty
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = client.RoundTrip(request(ctx, t, config.Host)) //nolint:bodyclose // there is none
		testenv.CheckError(t, err, auth.ErrUnavailable, "timed out")
		wg.Wait()
		if n := provider.derived.Load(); n != 2 {
			t.Errorf("%d credentials, want the first one and one renewal", n)
		}
	})
}

// The credential goes to the cluster's address and nowhere else, and a request
// ends with its own context.
func TestClusterConfigOnlyServesItsCluster(t *testing.T) {
	k8s, provider, server := newCluster(), newClouds(), &apiServer{}
	key := k8s.create("tenant-a", "app", nil)
	config, err := auth.GetClusterConfig(t.Context(), provider, auth.WithServiceAccount(key, k8s),
		testenv.Owner("tenant-a"), auth.WithClusterAddress("https://1.2.3.4:6443"))
	if err != nil {
		t.Fatal(err)
	}
	client := clusterClient(t, config, server)
	for _, url := range []string{"https://1.2.3.4/api", "https://1.2.3.4:6444/api", "http://1.2.3.4:6443/api",
		"https://evil.example:6443/api"} {
		if _, err := client.RoundTrip(request(t.Context(), t, url)); !errors.Is(err, auth.ErrDenied) ||
			!strings.Contains(err.Error(), "1.2.3.4:6443") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if len(server.bearers) != 0 {
		t.Errorf("requests went out: %q", server.bearers)
	}
	k8s.remove(key)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gone, err := auth.GetClusterConfig(ctx, provider, auth.WithClusterAddress("https://1.2.3.4:6443"),
		auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a"))
	if gone != nil || err == nil {
		t.Errorf("got %v, %v", gone, err)
	}
}
