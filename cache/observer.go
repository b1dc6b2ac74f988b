package cache

import "time"

// Observer is told what happens in a cache. Its methods are called concurrently, on the hot path, without any lock of
// the cache; they must not block.
type Observer interface {
	// Attach is called once by each cache that has this observer. stats returns the cache's gauges at any time, and does not
	// keep the cache in memory.
	Attach(stats func() Stats)
	// Request is called for every request: whether it was served from the cache, and whether it was served at all.
	Request(object InvolvedObject, hit, ok bool)
	// Mint is called after every exchange, also after one that did not start because a limit refused it or because the
	// credential that it is made of could not be had. The result is one of Results.
	Mint(provider, result string, took time.Duration)
	// Refresh is called after every exchange that renewed a token ahead of time, in addition to Mint.
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

// Results returns all results that an Observer can see. Except for success, panic, timeout, error and limited, they are what an
// error's method ExchangeResult() string says or, if it has none, its method Result() string. The last two are for exchanges
// that never reached the provider's service: the API server did not give the token to exchange, or a limit of the cache did
// not let the exchange start.
func Results() []string {
	return []string{"success", "misconfigured", "denied", "throttled", "unavailable", "timeout", "panic", "error",
		"kubernetes_unavailable", "limited"}
}
