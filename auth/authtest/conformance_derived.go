package authtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
)

// derived is one kind of credential that is made of access tokens.
type derived struct {
	name    string
	get     func(ctx context.Context, p auth.Provider, opts []auth.Option) (auth.Token, error)
	secrets func(auth.Token) []string
}

// derivedKinds returns what the Harness can have made.
func (h *Harness) derivedKinds() []derived {
	var kinds []derived
	if h.Repository != "" {
		kinds = append(kinds, h.registry(h.Repository))
	}
	if len(h.Cluster) > 0 {
		kinds = append(kinds, derived{"access to a cluster", func(ctx context.Context, p auth.Provider, opts []auth.Option) (auth.Token, error) {
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
	return derived{"registry credentials", func(ctx context.Context, p auth.Provider, opts []auth.Option) (auth.Token, error) {
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
		return slices.DeleteFunc([]string{c.Username(), c.Password(), c.BearerToken()}, func(s string) bool { return len(s) < 20 })
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

func (h *Harness) ask(more ...auth.Option) []auth.Option {
	return append(append(slices.Clone(h.Options), auth.WithServiceAccount(h.Good, h.Client),
		auth.WithOwner(cache.InvolvedObject{Kind: "Conformance", Namespace: h.Good.Namespace, Name: "test"})), more...)
}

// testDerived: they live, redact themselves, and cost nothing but a look-up once they are cached.
func (h *Harness) testDerived(t *testing.T) {
	for _, kind := range h.derivedKinds() {
		tokens, err := cache.NewTokenCache(10)
		if err != nil {
			t.Fatal(err)
		}
		p := h.New(t)
		opts := h.ask(auth.WithCache(tokens, cache.InvolvedObject{Kind: "Conformance", Namespace: h.Good.Namespace, Name: "test"}))
		first, err := kind.get(t.Context(), p, opts)
		if err != nil {
			t.Errorf("%s: %v", kind.name, err)
			continue
		}
		if d := first.GetDuration(); d <= 0 || d > 24*time.Hour {
			t.Errorf("%s: they live for %s", kind.name, d)
		}
		checkRedaction(t, kind.name, first, kind.secrets(first))
		before := h.calls()
		if again, err := kind.get(t.Context(), p, opts); err != nil || again != first || h.calls() != before {
			t.Errorf("%s: the second time %v, %v, with %d more calls of the service", kind.name, again, err, h.calls()-before)
		}
		tokens.Close()
	}
}

func (h *Harness) testCluster(t *testing.T) {
	if len(h.Cluster) == 0 {
		return
	}
	p, ok := h.New(t).(auth.RESTConfigProvider)
	if !ok {
		t.Fatal("the provider has no GetAccessTokenOptionsForCluster")
	}
	sa, opts, before := h.serviceAccount(t, h.Good), h.options(), h.calls()
	for _, opt := range h.Cluster {
		opt(opts)
	}
	for _, audiences := range [][]string{opts.Audiences, nil} {
		opts.Audiences = audiences
		if err := checkClusterAccess(t.Context(), p, &sa, *opts); err != nil {
			t.Error(err)
		}
	}
	if n := h.calls() - before; n != 0 {
		t.Errorf("the service was called %d times", n)
	}
}

// checkClusterAccess also checks ClusterAccess.OneCluster: a token for one cluster has no audience of another.
func checkClusterAccess(ctx context.Context, p auth.RESTConfigProvider, sa *corev1.ServiceAccount, opts auth.Options) error {
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
		return errors.Join(fmt.Errorf("OneCluster is set, but the audiences are %q, and %q for another cluster", one, two), err)
	}
	return nil
}

// testForeign: nobody else's registry or Git server gets credentials, and nobody is asked for any.
func (h *Harness) testForeign(t *testing.T) {
	var foreign []derived
	for _, repository := range h.ForeignRepositories {
		foreign = append(foreign, h.registry(repository))
	}
	for _, address := range h.ForeignGitURLs {
		foreign = append(foreign, h.git(address))
	}
	before := h.calls()
	for n, kind := range foreign {
		token, err := kind.get(t.Context(), h.New(t), h.ask())
		if !errors.Is(err, auth.ErrMisconfigured) || token != nil {
			t.Errorf("%s %q: got %v, %v, want ErrMisconfigured", kind.name, slices.Concat(h.ForeignRepositories, h.ForeignGitURLs)[n], token, err)
		}
	}
	if n := h.calls() - before; n != 0 {
		t.Errorf("the service was called %d times", n)
	}
}

// testDerivedCancel: a call ends with its context, whatever it waits for.
func (h *Harness) testDerivedCancel(t *testing.T) {
	if h.Break == nil {
		return
	}
	for _, kind := range h.derivedKinds() {
		h.cancelled(t, kind.name, func(ctx context.Context) error {
			_, err := kind.get(ctx, h.New(t), h.ask())
			return err
		})
	}
}
