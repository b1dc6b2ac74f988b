package auth_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// A credential that is made of access tokens is replaced together with them.
func TestWithInvalidBeforeReplacesAccessTokens(t *testing.T) {
	for kind, tc := range minimumCases() {
		if tc.own {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k8s, provider := newCluster(), newClouds()
				opts := []auth.Option{auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
					testenv.Cached(t, "tenant-a")}
				first, err := tc.get(t.Context(), provider, opts...)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(11 * time.Second)
				second, err := tc.get(t.Context(), provider, append(opts, auth.WithInvalidBefore(time.Now()))...)
				if err != nil || second == first || provider.mints.Load() != 2 {
					t.Errorf("got %v after %v, with %d access tokens, %v", second, first, provider.mints.Load(), err)
				}
			})
		})
	}
}

// A call without the option keeps the credential until there is a new one: a
// tenant's cluster that refuses everything takes no valid token from other
// calls while the cloud is unavailable.
func TestOtherCallersKeepAnInvalidToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), newClouds()
		key := k8s.create("tenant-a", "app", nil)
		opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a")}
		ofCluster := append(opts[:2:2], auth.WithClusterResource("c"))
		first, err := auth.GetRESTConfig(t.Context(), provider, ofCluster...)
		if err != nil {
			t.Fatal(err)
		}
		part := func() auth.Token { return mustGet(t, provider, append(opts[:2:2], auth.WithScopes("cluster"))...) }
		old := part()
		if n := provider.mints.Load(); n != 1 {
			t.Fatalf("the token of the cluster is not that of others: %d exchanges", n)
		}
		refused := append(ofCluster[:3:3], auth.WithInvalidBefore(time.Now()))
		provider.mint = func(context.Context, string) (auth.Token, error) {
			return nil, &auth.Error{Reason: auth.ErrUnavailable, Message: "away"}
		}
		for range 3 {
			time.Sleep(11 * time.Second)
			if _, err := auth.GetRESTConfig(t.Context(), provider, refused...); !errors.Is(err, auth.ErrUnavailable) {
				t.Errorf("the cluster would refuse again: %v", err)
			}
			if part() != old {
				t.Error("other calls lost the access token")
			}
			if config, err := auth.GetRESTConfig(t.Context(), provider, ofCluster...); err != nil || config != first {
				t.Errorf("other calls lost the config: %v", err)
			}
		}
		provider.mint = nil
		time.Sleep(time.Minute)
		second, err := auth.GetRESTConfig(t.Context(), provider, refused...)
		if err != nil || second.BearerToken() == first.BearerToken() || part() == old {
			t.Errorf("afterwards: %v, %v", second, err)
		}
	})
}

// Invalidate of a source replaces the token once. Hits allocate nothing
// afterwards.
func TestAccessTokenSourceInvalidate(t *testing.T) {
	for identity, own := range map[string]bool{"ServiceAccount": false, "own identity": true} {
		t.Run(identity, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k8s, provider := newCluster(), ownIdentity{newClouds()}
				opts := []auth.Option{testenv.Cached(t, "tenant-a")}
				if !own {
					opts = append(opts, auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s))
				}
				source := auth.NewAccessTokenSource(provider, opts...)
				get := func() auth.Token {
					t.Helper()
					token, err := source.Token(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return token
				}
				first := get()
				source.Invalidate()
				if get() != first {
					t.Error("a token that is seconds old was replaced")
				}
				time.Sleep(11 * time.Second)
				second := get()
				if second == first || get() != second {
					t.Error("the token was not replaced once")
				}
				time.Sleep(time.Minute)
				if n := testing.AllocsPerRun(100, func() { get() }); own && n != 0 || get() != second {
					t.Errorf("a hit makes %v allocations", n)
				}
			})
		})
	}
}

// Options of a call add to those of the source, which keeps none of them.
func TestOptionsOfOneCallOfAnAccessTokenSource(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	source := auth.NewAccessTokenSource(provider, auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
		testenv.Cached(t, "tenant-a"))
	var seen []auth.Token
	for _, opts := range [][]auth.Option{nil, {auth.WithScopes("a")}, nil, {auth.WithScopes("a")}} {
		token, err := source.Token(t.Context(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, token)
	}
	if seen[0] != seen[2] || seen[1] != seen[3] || seen[0] == seen[1] {
		t.Errorf("got %v", seen)
	}
}

func TestKeychainInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), newClouds()
		providers := newSet(t, provider)
		keychain := auth.NewKeychain(providers, auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
			testenv.Cached(t, "tenant-a"))
		registry, err := name.NewRegistry("a.example.com")
		if err != nil {
			t.Fatal(err)
		}
		authenticator, err := keychain.ResolveContext(t.Context(), registry)
		if err != nil {
			t.Fatal(err)
		}
		testenv.CheckInvalidate(t, keychain, func() (string, error) {
			config, err := authenticator.Authorization()
			if err != nil {
				return "", err
			}
			return config.Password, nil
		})
		if n := provider.mints.Load(); n != 2 {
			t.Errorf("%d access tokens for two passwords, want 2", n)
		}
	})
}
