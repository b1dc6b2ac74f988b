package auth_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// newSlow returns a provider whose exchanges take seven seconds, and options
// for one of its ServiceAccounts.
func newSlow(t *testing.T) (ownIdentity, []auth.Option) {
	t.Helper()
	k8s, provider := newCluster(), ownIdentity{newClouds()}
	provider.mint = func(context.Context, string) (auth.Token, error) {
		time.Sleep(7 * time.Second) // of a bubble
		return provider.token("tenant-a/app", ""), nil
	}
	tokens := testenv.Cache(t, cache.WithPatience(5*time.Second))
	return provider, []auth.Option{auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
		testenv.WithCache(tokens, "tenant-a")}
}

// A call leaves an exchange that takes too long. A call of an AccessTokenSource
// waits.
func TestCallsHavePatience(t *testing.T) {
	for kind, waits := range map[string]time.Duration{"access token": 5 * time.Second,
		"registry credentials": 5 * time.Second, "AccessTokenSource": 7 * time.Second} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, opts := newSlow(t)
				start := time.Now()
				_, err := minimumCases()[kind].get(t.Context(), slow, opts...)
				if took := time.Since(start); took != waits || (err == nil) != (waits > 5*time.Second) {
					t.Errorf("after %s: %v", took, err)
				}
				var known *auth.Error
				if errors.As(err, &known) {
					testenv.CheckError(t, err, auth.ErrUnavailable, "get ", "more than 5s", "try again")
				}
				if known != nil && (known.RetryAfter() <= 0 || provider.Permanent(known)) {
					t.Errorf("got %+v, want a transient error with a hint", known)
				}
			})
		})
	}
}

// A keychain and a rest.Config wait for their own context. The call that makes
// the config does not, nor does the authenticator of an object.
func TestAdaptersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, opts := newSlow(t)
		providers := newSet(t, slow)
		registry, err := name.NewRegistry("a.example.com")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := auth.NewKeychain(providers, opts...).ResolveContext(t.Context(), registry); err != nil {
			t.Errorf("the keychain: %v", err)
		}
		another, withCache := newSlow(t)
		authenticator := auth.NewRegistryAuthenticator(another, "b.example.com/app", withCache...)
		if _, err := authenticator.AuthorizationContext(t.Context()); !errors.As(err, new(*cache.PendingError)) {
			t.Errorf("the authenticator of one registry: %v", err)
		}

		start := time.Now()
		opts = append(opts, auth.WithClusterResource("c"))
		if _, err := auth.GetClusterConfig(t.Context(), slow, opts...); !errors.Is(err, auth.ErrUnavailable) ||
			time.Since(start) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		time.Sleep(5 * time.Second)
		config, err := auth.GetClusterConfig(t.Context(), slow, opts...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		client := clusterClient(t, config, &apiServer{})
		if _, err := client.RoundTrip(request(t.Context(), t, config.Host)); err != nil { //nolint:bodyclose // it is empty
			t.Errorf("a request to the cluster: %v", err)
		}
	})
}
