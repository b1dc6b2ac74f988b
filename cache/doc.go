// Package cache keeps short-lived credentials until shortly before they expire,
// and renews them ahead of that. Controllers create one [TokenCache] and pass
// it to auth.WithCache. Programs with credentials of another kind call
// [TokenCache.GetOrSet] themselves.
//
// The example of the package mints a credential once, serves it from memory,
// and holds back a key whose exchange fails. Package metrics exports what a
// cache does, and package disk keeps credentials between short runs of a
// program.
//
// # Lifetimes
//
// Until its soft time, 80 % of its remaining lifetime less a little jitter, a
// token is fresh and served without any I/O. Then it is still served at once,
// while one refresh runs in the background. At its hard time, shortly before it
// expires and no later than the maximum duration ([WithMaxDuration]), callers
// wait for a new one. Both times hold on the monotonic and on the wall clock,
// so that neither a suspended machine nor a corrected clock makes the cache
// serve an expired token.
//
// # Exchanges
//
// Each key has one exchange in flight, however many callers wait for it. A
// caller whose context ends leaves. The exchange goes on for the others, with a
// deadline of its own. No lock is held meanwhile. A caller also leaves, with a
// [PendingError], once the exchange has run for five seconds ([WithPatience]),
// so that an exchange that hangs does not hold the workers of a controller.
//
// Two limits keep tenants apart. At each provider a tenant has 8 slots for
// exchanges ([WithMaxExchangesPerTenant]). An exchange waits at most two
// seconds for a slot. It does not wait while every slot has been held for
// longer than the patience. Over all tenants, exchanges start at a rate
// ([WithRate]), and at most 4,096 run with each provider. A tenant with many
// keys at an address that hangs fills only its own slots. An exchange that a
// limit does not let start fails with a [LimitError], which does not count as a
// failure of its key.
//
// # Failures
//
// A key that fails is tried again after a back-off of one second that doubles
// to half a minute. Until then callers get a [BackoffError]. A refresh that
// fails keeps the token until its hard time. If [Request.Classify] says that
// the error is permanent, the token is dropped at once. A refusal drops it the
// second time, half a minute later at the earliest. [Request.Group] makes keys
// back off together.
package cache
