package auth

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// observed records the Options that the provider gets, and keeps the pointer as
// an exchange in flight does.
type observed struct {
	keyProvider
	asked, exchanged *[]*provider.Options
}

func (o observed) GetIdentity(_ *corev1.ServiceAccount, opts *provider.Options) (string, error) {
	*o.asked = append(*o.asked, opts)
	return "id", nil
}

func (o observed) NewTokenForServiceAccount(_ context.Context, _ string, _ *corev1.ServiceAccount,
	opts *provider.Options,
) (Token, error) {
	*o.exchanged = append(*o.exchanged, opts)
	return &tag{expires: time.Now().Add(time.Hour)}, nil
}

// A background exchange reads the call after it has returned, so only a hit may
// give its memory to the next call.
func TestOnlyHitsRecycleTheirCall(t *testing.T) {
	tokens, err := cache.NewTokenCache(10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	var asked, exchanged []*provider.Options
	p := observed{keyProvider{name: "p"}, &asked, &exchanged}
	c := tokenCreator{saReader{sa: testServiceAccount(annotate("audiences", "same"))}, "ns"}
	call := func(region string) {
		_, err := GetAccessToken(t.Context(), p, WithSTSRegion(region), WithCache(tokens, testOwner),
			WithServiceAccount(client.ObjectKey{Namespace: "ns", Name: "app"}, c))
		if err != nil {
			t.Fatal(err)
		}
	}
	const misses = 20
	for i := range misses {
		call(string(rune('a' + i)))
		call("a") // a hit after the first round, which recycles
	}
	for i, opts := range exchanged {
		if want := string(rune('a' + i)); opts.STSRegion != want || opts.Subject.Name != "app" {
			t.Errorf("miss %d: its options now say region %q, want %q", i, opts.STSRegion, want)
		}
	}
	if len(exchanged) != misses {
		t.Errorf("%d exchanges, want %d", len(exchanged), misses)
	}
	if hits := asked[1:]; len(hits) == 0 || hits[0].STSRegion == "a" {
		t.Error("the memory of a hit was not cleared")
	}
}
