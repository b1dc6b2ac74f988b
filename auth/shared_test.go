package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// scoping adds the registry to the scopes of the access token, and remembers
// what the tokens were made with.
type scoping struct {
	*clouds
	mu   sync.Mutex
	seen []string
}

func (*scoping) GetAccessTokenOptionsForArtifactRepository(input string,
	_ *provider.Options) ([]provider.Option, error) {
	return []provider.Option{func(o *provider.Options) { o.Scopes = append(o.Scopes, input) }}, nil
}

func (s *scoping) NewArtifactRegistryCredentials(_ context.Context, input string, _ auth.Token, opts *provider.Options,
) (*auth.ArtifactRegistryCredentials, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, input+" with "+opts.Scopes[len(opts.Scopes)-1])
	return provider.NewArtifactRegistryCredentials("user", input, time.Now().Add(time.Hour)), nil
}

// An option of a provider that appends to a list of the caller does not reach
// the calls that share the caller's options.
func TestListsOfOptionsAreNotShared(t *testing.T) {
	k8s, p := newCluster(), &scoping{clouds: newClouds()}
	scopes := make([]string, 17) // a clone of 17 elements has room for more
	for i := range scopes {
		scopes[i] = fmt.Sprint("scope-", i)
	}
	opts := []auth.Option{auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
		testenv.Owner("tenant-a"), auth.WithScopes(scopes...)}
	var calls sync.WaitGroup
	for n := range 16 {
		calls.Go(func() {
			if _, err := auth.GetArtifactRegistryCredentials(t.Context(), p, fmt.Sprintf("r%d.example.com/app", n),
				opts...); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	for _, seen := range p.seen {
		if registry, scope, _ := strings.Cut(seen, " with "); registry != scope {
			t.Errorf("the credential of %s has the scope of %s", registry, scope)
		}
	}
}

// An error that two callers share names the annotations of each to that one
// alone.
func TestCallersAnnotationsAreNotShared(t *testing.T) {
	k8s, p := newCluster(), &exchange{mint: refused}
	key, tokens := k8s.create("tenant-a", "app", map[string]string{"identity": "same"}), testenv.Cache(t)
	get := func(more ...auth.Option) *auth.Error {
		_, err := auth.GetAccessToken(t.Context(), p,
			append(more, auth.WithServiceAccount(key, k8s), testenv.WithCache(tokens, "tenant-a"))...)
		var known *auth.Error
		if !errors.As(err, &known) || !errors.Is(err, auth.ErrDenied) {
			t.Fatal(err)
		}
		return known
	}
	callers := auth.WithAnnotations(map[string]string{"identity": "same", strings.Repeat("x", 1000): "y"})
	first, second, third := get(callers), get(), get(callers)
	if len(first.CallersAnnotations) != 2 || len(second.CallersAnnotations) != 0 || len(third.CallersAnnotations) != 2 ||
		p.mints.Load() != 1 {
		t.Errorf("%q, %q and %q after %d exchanges", first.CallersAnnotations, second.CallersAnnotations,
			third.CallersAnnotations, p.mints.Load())
	}
	if auth.RetryAfter(third) == 0 || len(third.Error()) > 500 {
		t.Errorf("retry after %s: %v", auth.RetryAfter(third), third)
	}
}

// An object's author chooses number and length of the annotations.
func TestCallersAnnotationsAreBounded(t *testing.T) {
	k8s, p := newCluster(), &exchange{mint: refused}
	key, many := k8s.create("tenant-a", "app", nil), map[string]string{}
	for i := range 3000 {
		many[fmt.Sprintf("annotation-%04d-%s", i, strings.Repeat("x", 1000))] = "y"
	}
	_, err := auth.GetAccessToken(t.Context(), p, auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a"),
		auth.WithAnnotations(many))
	content, encoding := json.Marshal(err)
	if err == nil || len(err.Error()) > 2000 || len(content) > 4000 || encoding != nil ||
		!strings.Contains(err.Error(), `"annotation-0000-`) || !strings.Contains(err.Error(), "2992 more") {
		t.Errorf("%d and %d bytes, %v: %.3000s", len(fmt.Sprint(err)), len(content), encoding, fmt.Sprint(err))
	}
}

// A provider that asks Options.CheckAudience never sends out a token of the API
// server, whatever the policy allows.
func TestCheckAudienceRefusesTheAPIServers(t *testing.T) {
	k8s, p := newCluster(), &audienceAsker{exchange: &exchange{}}
	_, err := auth.GetAccessToken(t.Context(), p, auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
		testenv.Owner("tenant-a"), auth.WithPolicy(auth.Policy{AllowAnyAudience: true}))
	if err != nil || !slices.Equal(p.refused, []string{"https://kubernetes.default.svc", "k3s"}) {
		t.Errorf("refused %q, %v", p.refused, err)
	}
}

type audienceAsker struct {
	*exchange
	refused []string
}

func (a *audienceAsker) GetAudiences(ctx context.Context, sa *corev1.ServiceAccount,
	opts *provider.Options) ([]string, error) {
	for _, audience := range []string{"vault", "https://kubernetes.default.svc", "k3s"} {
		if opts.CheckAudience(audience) != nil {
			a.refused = append(a.refused, audience)
		}
	}
	return a.exchange.GetAudiences(ctx, sa, opts)
}
