// Package metrics exports Prometheus metrics of token caches, for controllers
// that pass [New] to [cache.WithObserver]. The example of the package counts
// the hits and misses of an object.
//
// With the prefix gotk_token_ the metrics are
//
//	gotk_token_cache_events_total{event_type,kind,name,namespace,operation}  hits and misses by object
//	gotk_token_cache_requests_total{status}                  requests, by success
//	gotk_token_cache_evictions_total                         tokens evicted to make room for others
//	gotk_token_cached_items                                  tokens in the cache
//	gotk_token_cache_mint_duration_seconds{provider,result}  duration of exchanges
//	gotk_token_cache_refreshes_total{result}                 renewals before expiry
//	gotk_token_cache_exchanges                               exchanges in flight, running or queued
//	gotk_token_cache_running_exchanges                       of these, running
//	gotk_token_cache_slot_queued_exchanges                   of these, waiting for a slot of their tenant
//	gotk_token_cache_rate_queued_exchanges                   of these, waiting for the start rate
//	gotk_token_cache_waiting_callers                         callers waiting for an exchange
//	gotk_token_cache_failing_keys{provider,result}           credentials with a failed last exchange
//
// A call of auth that fails before it asks the cache, for example because of an
// annotation, counts nowhere. The result "kubernetes_unavailable" means that
// the API server failed and the provider's service was not asked. The result
// "limited" means that a limit of the cache kept the exchange from starting
// ([cache.LimitError]).
//
// The first metric has a series for each object. Remove the series of a deleted
// object with [Metrics.DeleteEventsForObject]. [WithNamespaceLabel] renames its
// label namespace.
package metrics
