package auth_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// chained is a provider whose identities assume further ones.
type chained struct {
	*exchange
	refuse func(previous *tagged) error

	mu    sync.Mutex
	steps []string // the identities that were assumed further
}

type (
	nextOption   struct{}
	lengthOption struct{}
)

var errPreviousRefused = errors.New("the previous token is not valid")

func next(identity string) auth.Option { return auth.WithProviderOption(nextOption{}, identity) }

func (*chained) GetChain(opts *provider.Options) (chain []string) {
	length, bounded := opts.Value(lengthOption{}).(int)
	for v := range opts.Values(nextOption{}) {
		if identity, ok := v.(string); ok && (!bounded || len(chain) < length) {
			chain = append(chain, identity)
		}
	}
	return chain
}

func (c *chained) AddToCacheKey(key provider.KeyBuilder, _ *corev1.ServiceAccount, opts *provider.Options) {
	key.AddList("chain", c.GetChain(opts))
}

func (c *chained) GetAccessTokenOptionsForChain(opts *provider.Options) []provider.Option {
	chain := c.GetChain(opts)
	if len(chain) == 0 {
		return nil
	}
	return []provider.Option{provider.WithOption(lengthOption{}, len(chain)-1)}
}

func (c *chained) NewChainedToken(_ context.Context, previous auth.Token, opts *provider.Options) (auth.Token, error) {
	from, ok := previous.(*tagged)
	if !ok {
		return nil, fmt.Errorf("got a %T", previous)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	chain := c.GetChain(opts)
	c.steps = append(c.steps, chain[len(chain)-1])
	if c.refuse != nil {
		if err := c.refuse(from); err != nil {
			return nil, err
		}
	}
	return c.token(from.subject, from.identity+">"+chain[len(chain)-1]), nil
}

func (*chained) RefusesPrevious(err error) bool { return errors.Is(err, errPreviousRefused) }

// Chains that begin alike share their beginning, and each token is kept on its
// own.
func TestChainsShareTheirBeginning(t *testing.T) {
	k8s, provider := newCluster(), &chained{exchange: &exchange{}}
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "first"})
	opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a")}
	for range 2 {
		for _, chain := range [][]string{{"a", "b"}, {"a", "c"}, {"a"}, {}, {"b", "a"}} {
			want, all := "first", slices.Clone(opts)
			for _, identity := range chain {
				want, all = want+">"+identity, append(all, next(identity))
			}
			if got := mustGet(t, provider, all...); got.identity != want {
				t.Errorf("got the identity %q, want %q", got.identity, want)
			}
		}
	}
	if want := []string{"a", "b", "c", "b", "a"}; !slices.Equal(provider.steps, want) || k8s.requests.Load() != 1 {
		t.Errorf("assumed %q with %d tokens of the ServiceAccount, want %q with one", provider.steps,
			k8s.requests.Load(), want)
	}
}

func TestChainWithoutACache(t *testing.T) {
	k8s, provider := newCluster(), &chained{exchange: &exchange{}}
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "first"})
	got := mustGet(t, provider, auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a"), next("a"),
		next("b"))
	if got.identity != "first>a>b" {
		t.Errorf("got the identity %q", got.identity)
	}
}

func TestChainOfTheControllersOwnIdentity(t *testing.T) {
	provider := &chained{exchange: &exchange{}}
	tokens := testenv.Cache(t)
	for _, identity := range []string{"a", "b", "a"} {
		got := mustGet(t, provider, testenv.WithCache(tokens, "tenant-a"), next(identity))
		if got.subject != "controller" || got.identity != ">"+identity {
			t.Errorf("got %q of %q", got.identity, got.subject)
		}
	}
	if n := provider.controller.Load(); n != 1 || len(provider.steps) != 2 {
		t.Errorf("%d own credentials for %q", n, provider.steps)
	}
}

func TestAuthorizeSeesTheChain(t *testing.T) {
	k8s, provider := newCluster(), &chained{exchange: &exchange{}}
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "first"})
	var got [][]string
	policy := auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
		got = append(got, append([]string{r.Identity}, r.Chain...))
		return errors.New("no")
	}})
	opts := []auth.Option{policy, testenv.Owner("tenant-a"), next("a"), next("b")}
	for _, more := range [][]auth.Option{{auth.WithServiceAccount(key, k8s)}, nil} {
		_, err := auth.GetAccessToken(t.Context(), provider, append(opts[:4:4], more...)...)
		testenv.CheckError(t, err, auth.ErrDenied, "policy refuses")
	}
	if len(got) != 2 || !slices.Equal(got[0], []string{"first", "a", "b"}) ||
		!slices.Equal(got[1], []string{"", "a", "b"}) {
		t.Errorf("the hook saw %q", got)
	}
}

// A deleted and re-created first identity heals with the next call, not when
// its old token expires.
func TestChainReplacesATokenThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), &chained{exchange: &exchange{}}
		key := k8s.create("tenant-a", "app", map[string]string{"identity": "first"})
		opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a")}
		first := mustGet(t, provider, opts...)
		time.Sleep(time.Minute)
		provider.refuse = func(previous *tagged) error {
			if previous.serial == first.serial {
				return &auth.Error{Reason: auth.ErrDenied, Message: "not valid", Err: errPreviousRefused}
			}
			return nil
		}
		_, err := auth.GetAccessToken(t.Context(), provider, append(opts, next("a"))...)
		testenv.CheckError(t, err, auth.ErrDenied, "not valid")
		time.Sleep(5 * time.Second)
		if got := mustGet(t, provider, append(opts, next("a"))...); got.identity != "first>a" {
			t.Errorf("got the identity %q", got.identity)
		}
		if again := mustGet(t, provider, opts...); again == first {
			t.Error("the refused token was returned again")
		}
	})
}

// What refuses the next identity only leaves the first one's token to the
// others.
func TestChainKeepsATokenThatIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), &chained{exchange: &exchange{}}
		key := k8s.create("tenant-a", "app", map[string]string{"identity": "first"})
		opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a")}
		first := mustGet(t, provider, opts...)
		time.Sleep(time.Minute)
		provider.refuse = func(*tagged) error { return &auth.Error{Reason: auth.ErrDenied, Message: "not trusted"} }
		_, err := auth.GetAccessToken(t.Context(), provider, append(opts, next("a"))...)
		testenv.CheckError(t, err, auth.ErrDenied, "not trusted")
		if mustGet(t, provider, opts...) != first {
			t.Error("the first identity's token was dropped")
		}
	})
}
