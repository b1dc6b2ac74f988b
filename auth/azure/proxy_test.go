package azure_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Agents that hand out the controller's own identity speak plain http, not
// always on an address of this machine.
func TestAgentsAreDialledDirectly(t *testing.T) {
	for name, tc := range map[string]struct{ variable, header, secret string }{
		"App Service":      {"IDENTITY_ENDPOINT", "IDENTITY_HEADER", "X-IDENTITY-HEADER"},
		"Machine Learning": {"MSI_ENDPOINT", "MSI_SECRET", "secret"},
		"Cloud Shell":      {"MSI_ENDPOINT", "", "Metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnvironment(t)
			proxy, asked := testenv.RefusingProxy(t)
			t.Setenv(tc.variable, testenv.Alias(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get(tc.secret) == "" {
					t.Errorf("the header %q is missing", tc.secret)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w,
					`{"access_token":"own-token","expires_in":"3600","expires_on":"`+
						strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)+`","resource":"r","token_type":"Bearer"}`)
			}))
			if tc.header != "" {
				t.Setenv(tc.header, "the-secret")
			}
			token, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, auth.WithProxyURL(*proxy))
			if err != nil || len(asked()) != 0 {
				t.Fatalf("%v; the proxy was asked %q", err, asked())
			}
			if own, err := azure.FromToken(token); err != nil || own.AccessToken().Token != "own-token" {
				t.Errorf("got %v, %v, want own-token", own, err)
			}
		})
	}
}

// A tenant learns nothing of the controller's network from the errors of a
// proxy of its own.
func TestErrorsOfAProxy(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	testenv.CheckProxyErrors(t, func(ctx context.Context, proxy auth.Option) error {
		_, err := auth.GetAccessToken(ctx, &azure.Provider{},
			w.Options("tenant-a", "app", auth.WithHTTPClient(nil), proxy)...)
		return err
	})
	configure(t, tenantID, clientB, "AZURE_CLIENT_SECRET", "the-secret-of-it")
	testenv.CheckProxyErrors(t, func(ctx context.Context, proxy auth.Option) error {
		_, err := auth.GetAccessToken(ctx, &azure.Provider{}, proxy)
		return err
	})
}
