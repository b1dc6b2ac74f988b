package exchange_test

import (
	"context"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/internal/testworld"
)

// A tenant learns nothing of the controller's network from the errors of a proxy of its own.
func TestErrorsOfAProxy(t *testing.T) {
	w := newWorld(t)
	for _, provider := range []*exchange.Provider{{Endpoint: "https://oauth.example/token"}, {IssuerURL: "https://oauth.example"}} {
		testworld.CheckProxyErrors(t, func(ctx context.Context, proxy auth.Option) error {
			_, err := auth.GetAccessToken(ctx, provider, w.options("tenant-a", auth.WithHTTPClient(nil), proxy)...)
			return err
		})
	}
}
