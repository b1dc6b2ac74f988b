// Package cache keeps short-lived credentials until shortly before they expire, and renews them ahead of that.
//
//	tokens, err := cache.NewTokenCache(10_000)
//	if err != nil {
//		return err
//	}
//	defer tokens.Close()
//
// Most callers hand the cache to auth.WithCache and never touch it again. Whoever has credentials of another kind uses
// it directly:
//
//	token, _, err := tokens.GetOrSet(ctx, cache.Request{
//		Key:    cache.Key(sha256.Sum256(everythingThatShapesTheToken)),
//		Tenant: namespace,
//		Mint:   func(ctx context.Context) (cache.Token, error) { return exchange(ctx) },
//	})
//
// # Life of an entry
//
// An entry is fresh until its soft time, 80 % of what was left of its life less a little jitter: it is served without any
// I/O. From then on it is stale: it is still served at once, while one refresh runs in the background. At its hard time,
// shortly before the token expires and no later than the maximum duration, it is gone and callers wait for a new one.
// Both times hold on the monotonic and on the wall clock, so neither a suspended machine nor a corrected clock makes
// the cache serve an expired token.
//
// # Slow and failing services
//
// Each key has one flight at a time, however many callers wait for it. A caller whose context ends leaves; the flight
// goes on for the others, with a deadline of its own. No lock is held meanwhile.
//
// Two limits keep tenants apart. At each provider a tenant has 8 slots for exchanges (WithMaxFlightsPerTenant); an exchange
// waits for one for two seconds at most. Over all, exchanges start at a rate (WithRate). A tenant with many keys at an address
// that hangs fills its own slots and nothing else. With each provider at most 4,096 exchanges run. An exchange that
// a limit does not let start fails with a LimitError, which is no failure of its key.
//
// A key that fails is tried again after a back-off of one second that doubles to half a minute; until then callers get
// the same error. A refresh that fails keeps the token until its hard time, unless the error says that it is permanent
// (a method Permanent() bool in its chain): then the token is dropped at once.
//
// Keys may form a group (Request.Group) whose exchanges fail for the same cause, such as the sessions of one role. Once
// two keys have failed, every key of the group that has no valid token is held back, and one key at a time tries again.
package cache
