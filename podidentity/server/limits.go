package server

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits that keep one client from exhausting shared resources: TokenReviews of
// the API server, and the quota of STS.
const (
	maxReviews      = 64             // in flight
	namespaceRate   = rate.Limit(50) // attested requests a second
	namespaceBurst  = 500
	namespaceRefill = 10 * time.Second // from empty to full
)

// namespaceLimits holds a token bucket for each namespace with recent requests.
type namespaceLimits struct {
	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	swept   time.Time
}

func (l *namespaceLimits) take(namespace string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.swept) > namespaceRefill {
		// A full bucket equals a new one.
		maps.DeleteFunc(l.buckets, func(_ string, b *rate.Limiter) bool { return b.TokensAt(now) >= namespaceBurst })
		l.swept = now
	}
	bucket := l.buckets[namespace]
	if bucket == nil {
		bucket = rate.NewLimiter(namespaceRate, namespaceBurst)
		l.buckets[namespace] = bucket
	}
	if bucket.AllowN(now, 1) {
		return nil
	}
	return throttled(time.Second)
}

func throttled(retryAfter time.Duration) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: codeThrottled, result: codeThrottled,
		message: "too many requests for credentials at the moment", retryAfter: retryAfter + spread()}
}
