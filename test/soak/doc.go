// Package soak puts a whole installation under load while its surroundings
// fail: thousands of tenants on three clouds, a real API server as their
// issuer, the callers of a controller, and one token cache. It is a test:
//
//	make soak                  # five minutes
//	make soak SOAKTIME=40s     # the same phases, shorter; in less, credentials do not come to their end
//	make soak SOAKRATE=1000    # half of the calls, for a machine that is slow or busy
//
// What it asserts, on every one of hundreds of thousands of calls:
//
//   - No credential of one tenant ever reaches another: the fake cloud says
//     whose each credential is. Nor does one of an earlier life of the same
//     ServiceAccount, or of the identity that its annotation named before.
//   - No expired credential is served, and none for longer than the cache may
//     keep it.
//   - No good tenant fails while the cache has a valid credential for it,
//     whatever is down, and none fails without a fault. While one cloud hangs,
//     the tenants of the others neither fail nor wait for longer than six
//     seconds.
//   - A call leaves an exchange that takes longer than the patience of the
//     cache only while a fault makes exchanges slow. A later call gets what the
//     caller left.
//   - No key is exchanged twice at once, or before it is due, or before its
//     back-off is over. An exchange sends no more requests than the provider
//     retries. Without a fault, it takes one TokenRequest and as many requests
//     to the cloud as it must.
//   - Afterwards the cache drains by itself; goroutines and memory return to
//     what they were.
//
// It also fails if it proves nothing: if a fault was not felt where it was set,
// if credentials were not renewed, or if more than a twentieth of the calls
// could not be made.
//
// Half of the calls read ServiceAccounts with controller-runtime's informer,
// half with one that strips and shares them, and some at the API server. What
// it cannot do is set the clock of its own process; package cache tests that
// with a clock of its own. The faults are those of cloudtest; connections are
// cut for real, and so is the API server.
package soak
