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
// Until its soft time, a token is fresh and served without any I/O. The soft
// time is 80 % of the remaining lifetime less a little jitter. After it, the
// token is still served at once, while one refresh runs in the background. At
// the hard time, callers wait for a new token. The hard time is shortly before
// the expiry and no later than the maximum duration ([WithMaxDuration]). Both
// times hold on the monotonic and on the wall clock. So the cache never serves
// an expired token after a suspend or a clock correction.
//
// # Exchanges
//
// Each key has one exchange in flight, however many callers wait for it. A
// caller whose context ends leaves. The exchange goes on for the others, with a
// deadline of its own. No lock is held meanwhile. A caller also leaves, with a
// [PendingError], once the exchange has run for five seconds ([WithPatience]).
// An exchange that hangs thus does not hold the workers of a controller.
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
