package cache

import (
	"maps"
	"time"
)

// Observer observes a cache. Its methods are called concurrently, on the hot
// path, without any lock of the cache. They must not block.
type Observer interface {
	// Attach is called once by each cache that has this observer. stats returns
	// the cache's gauges at any time, and does not keep the cache in memory.
	Attach(stats func() Stats)
	// Request is called for every request. hit reports that the token was in
	// the cache, ok that the request succeeded.
	Request(object InvolvedObject, hit, ok bool)
	// Mint is called after every exchange, also after one that could not start.
	// The result is one of Results.
	Mint(provider, result string, took time.Duration)
	// Refresh is called in addition to Mint after every exchange that renewed a
	// token ahead of time.
	Refresh(result string)
	// Evicted is called when a token had to make room for another one.
	Evicted()
}

type noObserver struct{}

func (noObserver) Attach(func() Stats)                {}
func (noObserver) Request(InvolvedObject, bool, bool) {}
func (noObserver) Mint(string, string, time.Duration) {}
func (noObserver) Refresh(string)                     {}
func (noObserver) Evicted()                           {}

// The results of exchanges that an [Observer] can see. The results of the first
// group come from [Request.Classify].
const (
	ResultMisconfigured = "misconfigured"
	ResultDenied        = "denied"
	ResultThrottled     = "throttled"
	ResultUnavailable   = "unavailable"
	// ResultKubernetesUnavailable means that the API server did not issue the
	// token to exchange.
	ResultKubernetesUnavailable = "kubernetes_unavailable"

	ResultSuccess = "success"
	ResultTimeout = "timeout"
	ResultPanic   = "panic"
	ResultError   = "error"
	// ResultLimited means that a limit of the cache did not let the exchange
	// start.
	ResultLimited = "limited"
)

// Results returns all of them.
func Results() []string {
	return []string{ResultSuccess, ResultMisconfigured, ResultDenied, ResultThrottled, ResultUnavailable, ResultTimeout,
		ResultPanic, ResultError, ResultKubernetesUnavailable, ResultLimited}
}

// Stats are the gauges of a cache.
type Stats struct {
	Items         int // tokens in the cache
	Exchanges     int // exchanges that run, are queued, or wait for a part of the credential
	Running       int // exchanges that have started
	QueuedForSlot int // exchanges that wait because their tenant uses all of its slots
	QueuedForRate int // exchanges that wait because of the start rate
	Waiting       int // callers that wait for an exchange
	// Failing is the number of keys whose last exchange failed. It does not
	// grow with the attempts. A key is forgotten when it succeeds, or about
	// five minutes after its back-off if it is no longer requested. Nil if
	// none.
	Failing map[Failing]int
}

// Failing identifies a kind of failed exchange by the provider of the request
// and one of [Results].
type Failing struct{ Provider, Result string }

// Stats returns the gauges as they are now.
func (c *TokenCache) Stats() (s Stats) {
	c.locked(func() {
		s = Stats{Items: c.entries.Len(), Exchanges: c.inFlight, Waiting: int(c.waiting.Load()),
			QueuedForSlot: int(c.limits.queuedForSlot.Load()), QueuedForRate: int(c.limits.queuedForRate.Load())}
		c.limits.mu.Lock()
		for _, n := range c.limits.running {
			s.Running += n
		}
		c.limits.mu.Unlock()
		if len(c.failing) > 0 {
			s.Failing = maps.Clone(c.failing)
		}
	})
	return s
}
