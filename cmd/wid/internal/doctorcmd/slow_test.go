package doctorcmd

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A creation waits for the API server to name a slow webhook. Everything else waits 5 seconds.
func TestSlowWebhookIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		method      string
		check, want time.Duration
	}{
		"dry run": {http.MethodPost, 12 * time.Second, 12 * time.Second}, "read": {http.MethodGet, 12 * time.Second, 5 * time.Second},
		"lookup of kinds": {http.MethodGet, 0, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.check > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.check)
					defer cancel()
				}
				request, err := http.NewRequestWithContext(ctx, tt.method, "https://cluster.example/api/v1/namespaces/a/pods?dryRun=All", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				response, err := limited{roundTripper(func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() })}.RoundTrip(request)
				if response != nil {
					_ = response.Body.Close()
				}
				if took := time.Since(start); err == nil || took != tt.want {
					t.Errorf("%v after %s", err, took)
				}
			})
		})
	}
}
