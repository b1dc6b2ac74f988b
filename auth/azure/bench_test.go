package azure_test

import (
	"context"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// What is cached costs next to nothing: no request, and hardly any memory. The
// rest of what is allocated is the fake Kubernetes client's copy of the
// ServiceAccount, which is measured for comparison.
func TestHitsAllocateNothing(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.Cloud.Azure().SetRegistry("example.azurecr.io", cloudtest.AzureRegistry{Tenant: tenantID, Pull: []string{clientA}})
	jwt := w.Token(t, "tenant-a", "app", azure.DefaultAudience)
	p, ctx := &azure.Provider{}, context.Background()
	opts := []auth.Option{auth.WithSubjectToken(auth.NewStaticTokenSource(jwt),
		*identity("tenant-a", "app", tenantID, clientA)),
		auth.WithHTTPClient(w.http), testenv.Cached(t, "tenant-a")}
	floor := testing.AllocsPerRun(100, func() {
		if _, _, err := auth.NewStaticTokenSource(jwt).Token(ctx, nil); err != nil {
			t.Error(err)
		}
	})
	const own = 3 // the identity's text, and what the options bring
	for name, tc := range map[string]struct {
		call func() error
		most float64 // besides floor
	}{
		"access token": {func() error { _, err := auth.GetAccessToken(ctx, p, opts...); return err }, own},
		"registry": {func() error {
			_, err := auth.GetArtifactRegistryCredentials(ctx, p, "example.azurecr.io/app", opts...)
			return err
		}, own + 7},
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := tc.call(); err != nil {
				t.Error(err)
			}
		}); n > floor+tc.most {
			t.Errorf("%s: %v allocations, %v of them for reading the subject token, want %v more at most", name, n, floor,
				tc.most)
		}
	}
}
