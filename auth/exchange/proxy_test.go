package exchange_test

import (
	"context"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// A tenant learns nothing of the controller's network from the errors of a
// proxy of its own.
func TestErrorsOfAProxy(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		provider *exchange.Provider
		cache    *cache.TokenCache
	}{
		"exchange":  {provider: &exchange.Provider{Endpoint: "https://oauth.example/token"}},
		"discovery": {provider: &exchange.Provider{IssuerURL: "https://oauth.example"}},
		"cache":     {&exchange.Provider{Endpoint: "https://oauth.example/token"}, testenv.Cache(t)},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.CheckProxyErrors(t, func(ctx context.Context, proxy auth.Option) error {
				_, err := auth.GetAccessToken(ctx, tc.provider, w.options("tenant-a", auth.WithHTTPClient(nil), proxy,
					auth.WithCache(tc.cache, testenv.Object("tenant-a")))...)
				return err
			})
		})
	}
}
