package services

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/internal/testing/document"
)

// NewClaude returns Anthropic's own client for one ServiceAccount. provider is
// one for the whole controller, and opts are auth.WithServiceAccount and
// auth.WithCache. The SDK sends the header only where it authenticates by
// itself.
func NewClaude(provider *exchange.Provider, base http.RoundTripper, opts ...auth.Option) (anthropic.Client, error) {
	transport, err := provider.NewTransport(base, []string{"api.anthropic.com"}, opts...)
	if err != nil {
		return anthropic.Client{}, err
	}
	return anthropic.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}),
		option.WithAuthToken("replaced by the transport"), option.WithHeader("anthropic-beta", "oauth-2025-04-20")), nil
}

// The page's client calls the API as the tenant.
func TestPageShowsCompiledCode(t *testing.T) {
	document.Read(t, "docs/services.md").Shows("example_test.go", "// NewClaude returns")
	w := newEnvironment(t, anthropicService())
	w.fake.SetAPI(w.api(t, new(atomic.Value)))
	claude, err := NewClaude(w.provider, w.Cloud.Client().Transport, w.Options("tenant-a", "app")...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claude.Models.List(t.Context(), anthropic.ModelListParams{}); err != nil {
		t.Error(err)
	}
}
