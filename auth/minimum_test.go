package auth_test

import (
	"context"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// ownIdentity has the hook of ServiceAccounts for the controller's own identity
// too.
type ownIdentity struct{ *clouds }

func (o ownIdentity) NewControllerToken(ctx context.Context, _ *provider.Options) (auth.Token, error) {
	if o.mint == nil {
		return o.token("controller", ""), nil
	}
	o.mints.Add(1)
	return o.mint(ctx, "")
}

// minimumCase is a way to get a credential.
type minimumCase struct {
	own bool
	get func(ctx context.Context, p auth.Provider, opts ...auth.Option) (auth.Token, error)
}

func minimumCases() map[string]minimumCase {
	viaSource := func(ctx context.Context, p auth.Provider, opts ...auth.Option) (auth.Token, error) {
		return auth.NewAccessTokenSource(p, opts...).Token(ctx)
	}
	registry := func(ctx context.Context, p auth.Provider, opts ...auth.Option) (auth.Token, error) {
		return orNil(auth.GetArtifactRegistryCredentials(ctx, p, "a.example.com/app", opts...))
	}
	git := func(ctx context.Context, p auth.Provider, opts ...auth.Option) (auth.Token, error) {
		return orNil(auth.GetGitCredentials(ctx, p,
			append(opts[:len(opts):len(opts)], auth.WithGitURL(url.URL{Scheme: "https", Host: "a.example.com", Path: "/r"}))...))
	}
	cluster := func(ctx context.Context, p auth.Provider, opts ...auth.Option) (auth.Token, error) {
		return orNil(auth.GetRESTConfig(ctx, p, append(opts[:len(opts):len(opts)], auth.WithClusterResource("c"))...))
	}
	return map[string]minimumCase{
		"access token":                     {get: auth.GetAccessToken},
		"access token, own identity":       {own: true, get: auth.GetAccessToken},
		"AccessTokenSource":                {get: viaSource},
		"AccessTokenSource, own identity":  {own: true, get: viaSource},
		"registry credentials":             {get: registry},
		"registry credentials of the own":  {own: true, get: registry},
		"Git credentials":                  {get: git},
		"access to a cluster":              {get: cluster},
		"Git credentials, own identity":    {own: true, get: git},
		"one source for the whole program": {own: true, get: oneSource()},
	}
}

func orNil[T interface {
	comparable
	auth.Token
}](token T, err error) (auth.Token, error) {
	if err != nil {
		return nil, err
	}
	return token, nil
}

// oneSource keeps its AccessTokenSource, which remembers the key.
func oneSource() func(context.Context, auth.Provider, ...auth.Option) (auth.Token, error) {
	var source *auth.AccessTokenSource
	return func(ctx context.Context, p auth.Provider, opts ...auth.Option) (auth.Token, error) {
		if source == nil {
			source = auth.NewAccessTokenSource(p, opts...)
		}
		return source.Token(ctx)
	}
}

// Each way passes the option on. The cache's tests tell what it does.
func TestWithMinimumLifetime(t *testing.T) {
	for name, tc := range minimumCases() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k8s, provider := newCluster(), ownIdentity{newClouds()}
				opts := []auth.Option{testenv.Cached(t, "tenant-a"),
					auth.WithMinimumLifetime(30 * time.Minute)}
				if !tc.own {
					opts = append(opts, auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s))
				}
				var last auth.Token
				for i, replaced := range []bool{true, false, true} { // after no time, 29 and 31 minutes
					token, err := tc.get(t.Context(), provider, opts...)
					if err != nil || (token != last) != replaced {
						t.Errorf("call %d replaced the credential: %t, %v", i, token != last, err)
					}
					last = token
					time.Sleep(29*time.Minute - time.Duration(i)*27*time.Minute)
				}
			})
		})
	}
}

// The Settings' minimum counts for credentials that a caller keeps. What asks
// again by itself renews as it always does.
func TestMinimumLifetimeOfSettings(t *testing.T) {
	keeps := map[string]bool{"access token": true, "registry credentials": true, "Git credentials": true}
	for name, tc := range minimumCases() {
		if tc.own {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k8s, provider := newCluster(), ownIdentity{newClouds()}
				opts := []auth.Option{testenv.Cached(t, "tenant-a"),
					auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
					auth.WithSettings(&auth.Settings{ObjectLevelWorkloadIdentity: true, MinimumLifetime: 20 * time.Minute})}
				first, err := tc.get(t.Context(), provider, opts...)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(41 * time.Minute) // before the renewal in the background
				second, err := tc.get(t.Context(), provider, opts...)
				if replaced := second != first; err != nil || replaced != keeps[name] {
					t.Errorf("replaced: %t, %v", replaced, err)
				}
				if third, err := tc.get(t.Context(), provider,
					append(opts, auth.WithMinimumLifetime(time.Minute))...); err != nil || third != second {
					t.Errorf("the option does not win: %v", err)
				}
			})
		})
	}
}

func TestWithMinimumLifetimeHitsAllocateNothing(t *testing.T) {
	provider, tokens := &exchange{}, testenv.Cache(t)
	var known auth.Token
	for name, minimum := range map[string]time.Duration{"enough is left": time.Minute, "capped": 100 * time.Hour} {
		opts := []auth.Option{testenv.WithCache(tokens, "tenant-a"), auth.WithMinimumLifetime(minimum)}
		source := auth.NewAccessTokenSource(provider, opts...)
		for how, get := range map[string]func() (auth.Token, error){
			"source":         func() (auth.Token, error) { return source.Token(t.Context()) },
			"GetAccessToken": func() (auth.Token, error) { return auth.GetAccessToken(t.Context(), provider, opts...) },
		} {
			token, err := get()
			if err != nil {
				t.Fatal(err)
			}
			if known == nil {
				known = token
			}
			if n := testing.AllocsPerRun(100, func() { token, err = get() }); n >= 1 || err != nil || token != known {
				t.Errorf("%s, %s: a hit makes %v allocations, %v", name, how, n, err)
			}
		}
	}
}

func TestWithMinimumLifetimeRefusesNegative(t *testing.T) {
	_, err := auth.GetAccessToken(t.Context(), &exchange{}, auth.WithMinimumLifetime(-time.Second))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "-1s")
}
