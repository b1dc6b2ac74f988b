package gcp_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// The token that an external account is made of may come from an agent that
// speaks plain http.
func TestCredentialSourceIsDialledDirectly(t *testing.T) {
	clearEnvironment(t)
	proxy, asked := testenv.RefusingProxy(t)
	served := 0
	agent := testenv.Alias(t, func(w http.ResponseWriter, _ *http.Request) {
		served++
		_, _ = io.WriteString(w, "the-subject-token")
	})
	account := strings.Replace(newEnvironment(t).externalAccount(t), `"credential_source":{"file":`,
		`"credential_source":{"url":"`+agent+`","was":`, 1)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", testenv.WriteFile(t, account))
	_, err := auth.GetAccessToken(t.Context(), &gcp.Provider{}, auth.WithProxyURL(*proxy))
	testenv.CheckError(t, err, auth.ErrUnavailable)
	if served == 0 || len(asked()) == 0 || slices.ContainsFunc(asked(), func(s string) bool {
		return s != "CONNECT sts.googleapis.com:443"
	}) {
		t.Errorf("served %d times; the proxy was asked %q", served, asked())
	}
}

// A tenant learns nothing of the controller's network from the errors of a
// proxy of its own.
func TestErrorsOfAProxy(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	testenv.CheckProxyErrors(t, func(ctx context.Context, proxy auth.Option) error {
		_, err := auth.GetAccessToken(ctx, &gcp.Provider{}, w.Options("tenant-a", "app", auth.WithHTTPClient(nil), proxy)...)
		return err
	})
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", testenv.WriteFile(t, w.externalAccount(t)))
	testenv.CheckProxyErrors(t, func(ctx context.Context, proxy auth.Option) error {
		_, err := auth.GetAccessToken(ctx, &gcp.Provider{}, proxy)
		return err
	})
}
