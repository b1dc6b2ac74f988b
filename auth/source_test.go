package auth_test

import (
	"context"
	"errors"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

// The controller's own token is found again without looking at the options; once it is gone there is a new one.
func TestAccessTokenSourceOfTheController(t *testing.T) {
	provider, tokens := &exchange{}, testworld.Cache(t)
	source := auth.NewAccessTokenSource(provider, auth.WithCache(tokens, object("flux-system")))
	first, err := source.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if direct := mustGet(t, provider, auth.WithCache(tokens, object("flux-system"))); auth.Token(direct) != first {
		t.Error("the source and GetAccessToken do not share a place in the cache")
	}
	var again auth.Token
	if n := testing.AllocsPerRun(100, func() { again, err = source.Token(t.Context()) }); n > 15 || err != nil || again != first {
		t.Errorf("a hit makes %v allocations, %v", n, err)
	}
	tokens.Purge()
	if again, err = source.Token(t.Context()); err != nil || again == first {
		t.Errorf("after the purge the same token came back, %v", err)
	}
}

// What may change is looked at each time: the ServiceAccount, and what the policy thinks of the controller's own identity.
func TestAccessTokenSourceChecksEachTime(t *testing.T) {
	k8s, provider, tokens := newCluster(), &exchange{}, testworld.Cache(t)
	key := k8s.create("tenant-a", "app", nil)
	source := auth.NewAccessTokenSource(provider, auth.WithServiceAccount(key, k8s), auth.WithCache(tokens, object("tenant-a")))
	for range 2 {
		if _, err := source.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	k8s.remove(key)
	_, err := source.Token(t.Context())
	testworld.CheckError(t, err, auth.ErrMisconfigured, "not found")

	allowed := true
	own := auth.NewAccessTokenSource(provider, auth.WithCache(tokens, object("tenant-a")), auth.WithPolicy(auth.Policy{
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
	testworld.CheckError(t, err, auth.ErrDenied, "no longer")
}
