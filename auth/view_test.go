package auth_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// viewer records the options of its exchanges.
type viewer struct {
	exchange
	seen []provider.Options
}

func (v *viewer) NewTokenForServiceAccount(ctx context.Context, jwt string, sa *corev1.ServiceAccount,
	opts *provider.Options) (auth.Token, error) {
	v.seen = append(v.seen, *opts)
	return v.exchange.NewTokenForServiceAccount(ctx, jwt, sa, opts)
}

// A provider learns the identity that the Policy saw, and whether anything has
// verified the ServiceAccount's token.
func TestOptionsTellIdentityAndSource(t *testing.T) {
	k8s, v := newCluster(), &viewer{}
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "one"})
	subject := *testenv.ServiceAccount("tenant-a", "app", "identity", "one")
	jwt := unsigned(map[string]any{"sub": "system:serviceaccount:tenant-a:app", "aud": "exchange",
		"exp": time.Now().Add(time.Hour).Unix()})
	for n, source := range []auth.Option{
		auth.WithServiceAccount(key, k8s),
		auth.WithSubjectToken(&auth.TokenRequest{Client: k8s, ServiceAccount: &subject}, subject),
		auth.WithSubjectToken(auth.NewStaticTokenSource(jwt), subject),
	} {
		if _, err := auth.GetAccessToken(t.Context(), v, source, testenv.Owner("tenant-a")); err != nil {
			t.Fatal(err)
		}
		if got := v.seen[n]; got.Identity != "one" || got.TokenInHand != (n == 2) {
			t.Errorf("%d: identity %q, token in hand %t", n, got.Identity, got.TokenInHand)
		}
	}
}
