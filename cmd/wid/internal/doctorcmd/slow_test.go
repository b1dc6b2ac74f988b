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

// A request of a check waits for the API server to name a slow webhook. A lookup of kinds has no deadline, and waits 5 seconds.
func TestSlowWebhookIsNamed(t *testing.T) {
	for name, tt := range map[string]struct{ check, want time.Duration }{"check": {12 * time.Second, 12 * time.Second}, "lookup": {0, 5 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.check > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.check)
					defer cancel()
				}
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://cluster.example/api/v1/namespaces/a/pods?dryRun=All", http.NoBody)
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
