package auth_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// The controller's own token is found again; once it is gone there is a new
// one.
func TestAccessTokenSourceOfTheController(t *testing.T) {
	provider, tokens := &exchange{}, testenv.Cache(t)
	source := auth.NewAccessTokenSource(provider, testenv.WithCache(tokens, "flux-system"))
	first, err := source.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if direct := mustGet(t, provider, testenv.WithCache(tokens, "flux-system")); auth.Token(direct) != first {
		t.Error("the source and GetAccessToken do not share a place in the cache")
	}
	var again auth.Token
	if n := testing.AllocsPerRun(100, func() {
		again, err = source.Token(t.Context())
	}); n != 0 || err != nil || again != first {
		t.Errorf("a hit makes %v allocations, %v", n, err)
	}
	tokens.Purge()
	if again, err = source.Token(t.Context()); err != nil || again == first {
		t.Errorf("after the purge the same token came back, %v", err)
	}
}

// What may change is looked at each time: the ServiceAccount, and what the
// policy thinks of the controller's own identity.
func TestAccessTokenSourceChecksEachTime(t *testing.T) {
	k8s, provider, tokens := newCluster(), &exchange{}, testenv.Cache(t)
	key := k8s.create("tenant-a", "app", nil)
	source := auth.NewAccessTokenSource(provider, auth.WithServiceAccount(key, k8s),
		testenv.WithCache(tokens, "tenant-a"))
	for range 2 {
		if _, err := source.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	k8s.remove(key)
	_, err := source.Token(t.Context())
	testenv.CheckError(t, err, auth.ErrMisconfigured, "not found")

	allowed := true
	own := auth.NewAccessTokenSource(provider, testenv.WithCache(tokens, "tenant-a"), auth.WithPolicy(auth.Policy{
		Authorize: func(context.Context, auth.AuthorizeRequest) error {
			if allowed {
				return nil
			}
			return errors.New("no longer")
		}}))
	if _, err := own.Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	allowed = false
	_, err = own.Token(t.Context())
	testenv.CheckError(t, err, auth.ErrDenied, "no longer")
}

// Without a cache, an adapter keeps its credential for four fifths of its
// lifetime, however long that is. The ServiceAccount is still read each time.
func TestAdaptersWithoutCacheKeepTheirCredential(t *testing.T) {
	for name, adapter := range map[string]func(t *testing.T, p *clouds, opts ...auth.Option) (get func() error){
		"access token": func(t *testing.T, p *clouds, opts ...auth.Option) func() error {
			source := auth.NewAccessTokenSource(p, opts...)
			return func() error { _, err := source.Token(t.Context()); return err }
		},
		"registry": func(t *testing.T, p *clouds, opts ...auth.Option) func() error {
			a := auth.NewRegistryAuthenticator(p, "example.com/app", opts...)
			return func() error { _, err := a.AuthorizationContext(t.Context()); return err }
		},
		"cluster": func(t *testing.T, p *clouds, opts ...auth.Option) func() error {
			config, err := auth.GetClusterConfig(t.Context(), p, append(opts, auth.WithClusterResource("c"))...)
			if err != nil {
				return func() error { return err }
			}
			client := clusterClient(t, config, &apiServer{})
			return func() error {
				_, err := client.RoundTrip(request(t.Context(), t, config.Host)) //nolint:bodyclose // it is empty
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k8s, p := newCluster(), newClouds()
				p.lifetime = 24 * time.Hour
				key := k8s.create("tenant-a", "app", nil)
				get := adapter(t, p, auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a"))
				for hour := range 17 {
					if err := get(); err != nil {
						t.Fatalf("after %d hours: %v", hour, err)
					}
					time.Sleep(time.Hour)
				}
				if n := p.mints.Load(); n != 1 {
					t.Errorf("%d exchanges in 17 hours for a credential of 24, want 1", n)
				}
				k8s.remove(key)
				testenv.CheckError(t, get(), auth.ErrMisconfigured, "not found")
			})
		})
	}
}

// A reconciler leaves an exchange that takes too long, and finds its token at
// its next try.
func TestGetAccessTokenSourceHasPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, opts := newSlow(t)
		start := time.Now()
		_, err := auth.GetAccessTokenSource(t.Context(), slow, opts...)
		testenv.CheckError(t, err, auth.ErrUnavailable, "more than 5s", "try again")
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the call took %s, want 5s", took)
		}
		time.Sleep(3 * time.Second) // the exchange takes 7
		source, err := auth.GetAccessTokenSource(t.Context(), slow, opts...)
		if err != nil {
			t.Fatalf("the second try fails: %v", err)
		}
		if _, err := source.Token(t.Context()); err != nil || time.Since(start) != 8*time.Second {
			t.Errorf("after %s the source returns %v, want the token of the second try", time.Since(start), err)
		}
	})
}
