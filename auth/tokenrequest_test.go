package auth_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testworld"
)

// Three calls with the same source make one TokenRequest and one exchange.
func TestTokenRequestAsSubjectTokenKeepsTheCacheUseful(t *testing.T) {
	k8s, provider, tokens := newCluster(), &exchange{}, testworld.Cache(t)
	key := k8s.create("tenant-a", "app", nil)
	sa := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	source := &auth.TokenRequest{Client: k8s, ServiceAccount: &sa}
	for range 3 {
		mustGet(t, provider, auth.WithSubjectToken(source, sa), auth.WithCache(tokens, object("tenant-a")))
	}
	if requests, exchanges := k8s.requests.Load(), provider.mints.Load(); requests != 1 || exchanges != 1 {
		t.Errorf("%d TokenRequests and %d exchanges, want 1 and 1", requests, exchanges)
	}
}

// tokenRequest returns a source for a ServiceAccount of the cluster, and a function that asks it.
func tokenRequest(t *testing.T, k8s *cluster) (ask func(ctx context.Context, audiences ...string) (string, error)) {
	t.Helper()
	key := k8s.create("tenant-a", "app", nil)
	source := &auth.TokenRequest{Client: k8s,
		ServiceAccount: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}
	return func(ctx context.Context, audiences ...string) (string, error) {
		token, _, err := source.Token(ctx, audiences)
		return token, err
	}
}

func TestTokenRequestRenewsAfterFourFifthsOfTheLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s := newCluster()
		ask := tokenRequest(t, k8s)
		for _, step := range []struct {
			wait     time.Duration
			requests int64
		}{{0, 1}, {47 * time.Minute, 1}, {2 * time.Minute, 2}} {
			time.Sleep(step.wait)
			if _, err := ask(t.Context(), "vault"); err != nil || k8s.requests.Load() != step.requests {
				t.Errorf("after another %s: %d TokenRequests, want %d, %v", step.wait, k8s.requests.Load(), step.requests, err)
			}
		}
	})
}

func TestTokenRequestKeepsAudiencesApart(t *testing.T) {
	k8s := newCluster()
	ask := tokenRequest(t, k8s)
	seen := map[string]bool{}
	for _, audiences := range [][]string{{"a"}, {"b"}, {"a", "b"}, {`a" "b`}, {"a"}} {
		token, err := ask(t.Context(), audiences...)
		if err != nil {
			t.Fatal(err)
		}
		seen[token] = true
	}
	if n := k8s.requests.Load(); n != 4 || len(seen) != 4 {
		t.Errorf("%d TokenRequests and %d tokens for four lists of audiences", n, len(seen))
	}
}

func TestTokenRequestKeepsNoError(t *testing.T) {
	k8s := newCluster()
	ask := tokenRequest(t, k8s)
	k8s.requestErr = errors.New("connection refused")
	if _, err := ask(t.Context(), "vault"); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	k8s.requestErr = nil
	if _, err := ask(t.Context(), "vault"); err != nil {
		t.Error(err)
	}
}

// slow is a client whose requests wait for release, or for the end of their context.
type slow struct {
	*cluster
	release chan struct{}
}

func (s slow) SubResource(name string) client.SubResourceClient {
	return slowTokens{s.cluster.SubResource(name), s.release}
}

type slowTokens struct {
	client.SubResourceClient
	release chan struct{}
}

func (s slowTokens) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	select {
	case <-s.release:
		return s.SubResourceClient.Create(ctx, obj, sub, opts...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Callers share one request. The first one leaves with its context, the request goes on for the others.
func TestTokenRequestSharesOneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s := slow{newCluster(), make(chan struct{})}
		key := k8s.create("tenant-a", "app", nil)
		source := &auth.TokenRequest{Client: k8s,
			ServiceAccount: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, _, err := source.Token(ctx, []string{"vault"})
			left <- err
		}()
		synctest.Wait()
		var others sync.WaitGroup
		for range 8 {
			others.Go(func() {
				if _, _, err := source.Token(t.Context(), []string{"vault"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) || !errors.Is(err, auth.ErrUnavailable) {
			t.Errorf("the first caller got %v", err)
		}
		close(k8s.release)
		others.Wait()
		if n := k8s.requests.Load(); n != 1 {
			t.Errorf("%d TokenRequests, want 1", n)
		}
	})
}

// An API server that never answers holds back no later call.
func TestTokenRequestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s := slow{newCluster(), nil}
		source := &auth.TokenRequest{Client: k8s, ServiceAccount: &corev1.ServiceAccount{}}
		if _, _, err := source.Token(t.Context(), []string{"vault"}); !errors.Is(err, auth.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

// Without WithSubjectToken every exchange has a token of its own.
func TestMintMakesATokenRequestOfItsOwn(t *testing.T) {
	k8s, provider := newCluster(), &exchange{}
	key := k8s.create("tenant-a", "app", nil)
	for range 2 {
		mustGet(t, provider, auth.WithServiceAccount(key, k8s), auth.WithOwner(object("tenant-a")))
	}
	if n := k8s.requests.Load(); n != 2 {
		t.Errorf("%d TokenRequests, want 2", n)
	}
}
