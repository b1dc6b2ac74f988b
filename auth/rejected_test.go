package auth_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testworld"
)

// A credential that a service has refused is replaced once, for all who bring it, and not within ten seconds.
func TestWithRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), &exchange{}
		key := k8s.create("tenant-a", "app", map[string]string{"identity": "one"})
		tokens := testworld.Cache(t)
		opts := []auth.Option{auth.WithServiceAccount(key, k8s), auth.WithCache(tokens, object("tenant-a"))}
		instead := func(of auth.Token) *tagged { return mustGet(t, provider, append(opts[:2:2], auth.WithRejected(of))...) }

		first := mustGet(t, provider, opts...)
		if instead(first) != first || instead(nil) != first {
			t.Error("a credential that is seconds old was replaced")
		}
		time.Sleep(11 * time.Second)
		seen := make([]*tagged, 50)
		var wg sync.WaitGroup
		for i := range seen {
			wg.Go(func() { seen[i] = instead(first) })
		}
		wg.Wait()
		second := mustGet(t, provider, opts...)
		for _, got := range seen {
			if got != second || got == first {
				t.Errorf("got %v instead of %v", got, second)
			}
		}
		time.Sleep(11 * time.Second)
		if instead(first) != second {
			t.Error("who holds an old credential replaced the new one")
		}
		// Due for renewal, it would be returned once more while the new one is on its way.
		time.Sleep(50 * time.Minute)
		if instead(second) == second {
			t.Error("the refused credential was returned again")
		}
		if n := provider.mints.Load(); n != 3 {
			t.Errorf("%d exchanges", n)
		}
	})
}

func TestWithRejectedCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), newClouds()
		key := k8s.create("tenant-a", "app", nil)
		tokens := testworld.Cache(t)
		opts := []auth.Option{auth.WithServiceAccount(key, k8s), auth.WithCache(tokens, object("tenant-a")), auth.WithClusterResource("c")}
		first, err := auth.GetRESTConfig(t.Context(), provider, opts...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		second, err := auth.GetRESTConfig(t.Context(), provider, append(opts, auth.WithRejected(first))...)
		if err != nil || second.BearerToken() == first.BearerToken() {
			t.Errorf("the cluster would refuse again, %v", err)
		}
	})
}

// Nil means that none was refused, also that of a variable that has held no credential yet.
func TestWithRejectedNothing(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	key := k8s.create("tenant-a", "app", nil)
	var last *auth.RESTConfig
	for _, none := range []auth.Token{nil, last} {
		if _, err := auth.GetRESTConfig(t.Context(), provider, auth.WithServiceAccount(key, k8s), auth.WithClusterResource("c"),
			auth.WithRejected(none), auth.WithCache(testworld.Cache(t), object("tenant-a"))); err != nil {
			t.Errorf("%T: %v", none, err)
		}
	}
}

// What one cluster refuses is left to those who have use for it until there is a new one: a tenant's cluster that refuses
// everything takes no valid token from others while the cloud is away.
func TestRejectedPartIsLeftToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), newClouds()
		key := k8s.create("tenant-a", "app", nil)
		tokens := testworld.Cache(t)
		opts := []auth.Option{auth.WithServiceAccount(key, k8s), auth.WithCache(tokens, object("tenant-a"))}
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
		refused := append(ofCluster[:3:3], auth.WithRejected(first))
		provider.mint = func(context.Context, string) (auth.Token, error) {
			return nil, &auth.Error{Reason: auth.ErrUnavailable, Message: "away"}
		}
		for range 3 {
			time.Sleep(11 * time.Second)
			if _, err := auth.GetRESTConfig(t.Context(), provider, refused...); !errors.Is(err, auth.ErrUnavailable) {
				t.Errorf("the cluster would refuse again: %v", err)
			}
			if part() != old {
				t.Error("others got another token")
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
