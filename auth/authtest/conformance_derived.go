package authtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// derived is a kind of credential that is made of access tokens.
type derived struct {
	name    string
	get     func(ctx context.Context, p auth.Provider, opts []auth.Option) (auth.Token, error)
	secrets func(auth.Token) []string
}

// accessToken returns the only kind that is not derived.
func accessToken() derived {
	return derived{name: "access token",
		get: func(ctx context.Context, p auth.Provider, opts []auth.Option) (auth.Token, error) {
			return auth.GetAccessToken(ctx, p, opts...)
		}}
}

// derivedKinds returns the kinds that the Harness names.
func (h *Harness) derivedKinds() []derived {
	var kinds []derived
	if h.Repository != "" {
		kinds = append(kinds, h.registry(h.Repository))
	}
	if len(h.Cluster) > 0 {
		kinds = append(kinds,
			derived{"access to a cluster", func(ctx context.Context, p auth.Provider, opts []auth.Option) (auth.Token, error) {
				return nilIsNil(auth.GetRESTConfig(ctx, p, append(opts, h.Cluster...)...))
			}, func(t auth.Token) []string {
				config, _ := t.(*auth.RESTConfig)
				return []string{config.BearerToken()}
			}})
	}
	if h.GitURL != "" {
		kinds = append(kinds, h.git(h.GitURL))
	}
	return kinds
}

func (*Harness) registry(repository string) derived {
	return derived{"registry credentials",
		func(ctx context.Context, p auth.Provider, opts []auth.Option) (auth.Token, error) {
			return nilIsNil(auth.GetArtifactRegistryCredentials(ctx, p, repository, opts...))
		}, func(t auth.Token) []string {
			credentials, _ := t.(*auth.ArtifactRegistryCredentials)
			config, _ := credentials.Authorization()
			return []string{config.Password, config.RegistryToken}
		}}
}

func (*Harness) git(address string) derived {
	return derived{"Git credentials", func(ctx context.Context, p auth.Provider, opts []auth.Option) (auth.Token, error) {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		return nilIsNil(auth.GetGitCredentials(ctx, p, append(opts, auth.WithGitURL(*u))...))
	}, func(t auth.Token) []string {
		c, _ := t.(*auth.GitCredentials)
		return slices.DeleteFunc([]string{c.Username(), c.Password(), c.BearerToken()}, func(s string) bool {
			return len(s) < 20
		})
	}}
}

func nilIsNil[T interface {
	comparable
	auth.Token
}](t T, err error) (auth.Token, error) {
	var none T
	if t == none {
		return nil, err
	}
	return t, err
}

// testDerived asks twice: the second time, the cache answers.
func (h *Harness) testDerived(t *testing.T) {
	for _, kind := range h.derivedKinds() {
		p := h.New(t)
		opts := h.ask(h.Good, auth.WithCache(newCache(t), owner(h.Good)))
		first, err := kind.get(t.Context(), p, opts)
		if err != nil {
			t.Errorf("%s: %v", kind.name, err)
			continue
		}
		checkLifetime(t, kind.name, first)
		checkRedaction(t, kind.name, first, kind.secrets(first))
		before := h.calls()
		if again, err := kind.get(t.Context(), p, opts); err != nil || again != first || h.calls() != before {
			t.Errorf("%s: the second call returned %v, %v, after %d more calls of the service", kind.name, again, err,
				h.calls()-before)
		}
	}
}

func (h *Harness) testCluster(t *testing.T) {
	defer h.noCalls(t)()
	p, ok := h.New(t).(provider.RESTConfigProvider)
	if !ok {
		t.Fatal("the provider has no GetAccessTokenOptionsForCluster")
	}
	sa, opts := h.serviceAccount(t, h.Good), h.options(h.Cluster...)
	for _, audiences := range [][]string{opts.Audiences, nil} {
		opts.Audiences = audiences
		if err := checkClusterAccess(t.Context(), p, &sa, *opts); err != nil {
			t.Error(err)
		}
	}
}

// checkClusterAccess also checks ClusterAccess.OneCluster: a token for one
// cluster never has the audience of another.
func checkClusterAccess(ctx context.Context, p provider.RESTConfigProvider, sa *corev1.ServiceAccount,
	opts provider.Options) error {
	first, err := p.GetAccessTokenOptionsForCluster(&opts)
	if err != nil {
		return err
	}
	again, err := p.GetAccessTokenOptionsForCluster(&opts)
	if err != nil || len(first.AccessTokens) == 0 || len(again.AccessTokens) != len(first.AccessTokens) ||
		again.CacheKey != first.CacheKey || again.OneCluster != first.OneCluster || again.TakesAll != first.TakesAll {
		return errors.Join(fmt.Errorf("GetAccessTokenOptionsForCluster returned %+v, then %+v", first, again), err)
	}
	if !first.OneCluster {
		return nil
	}
	one, err := p.GetAudiences(ctx, sa, &opts)
	if err != nil {
		return err
	}
	opts.ClusterAddress = "https://other.example:6443"
	two, err := p.GetAudiences(ctx, sa, &opts)
	if err != nil || slices.ContainsFunc(one, func(s string) bool { return slices.Contains(two, s) }) {
		return errors.Join(fmt.Errorf("OneCluster is set, but the audiences are %q, and %q for another cluster", one, two),
			err)
	}
	return nil
}

// foreign returns credentials for hosts of other providers.
func (h *Harness) foreign() []derived {
	var kinds []derived
	for _, repository := range h.ForeignRepositories {
		kinds = append(kinds, h.registry(repository))
	}
	for _, address := range h.ForeignGitURLs {
		kinds = append(kinds, h.git(address))
	}
	return kinds
}

func (h *Harness) testForeign(t *testing.T) {
	defer h.noCalls(t)()
	for n, kind := range h.foreign() {
		token, err := kind.get(t.Context(), h.New(t), h.ask(h.Good))
		if !errors.Is(err, auth.ErrMisconfigured) || token != nil {
			t.Errorf("%s %q: got %v, %v, want ErrMisconfigured", kind.name,
				slices.Concat(h.ForeignRepositories, h.ForeignGitURLs)[n], token, err)
		}
	}
}

// subjectToken returns a token as package auth would pass it to the provider.
func (h *Harness) subjectToken(t *testing.T, sa *corev1.ServiceAccount, audiences []string) (jwt string) {
	t.Helper()
	var err error
	if h.Source == nil {
		jwt, _, err = (&auth.TokenRequest{Client: h.Client, ServiceAccount: sa}).Token(t.Context(), audiences)
	} else {
		call := &auth.Options{}
		for _, opt := range h.ask(h.Good) {
			opt(call)
		}
		jwt, _, err = h.Source.Token(t.Context(), sa, audiences, call)
	}
	if err != nil {
		t.Fatal(err)
	}
	return jwt
}
