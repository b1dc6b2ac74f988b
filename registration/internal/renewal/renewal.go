// Package renewal decides when an agent renews its credential.
package renewal

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

const (
	renewFraction = 0.80
	maxJitter     = 0.05
	// minInterval separates two renewals, however wrong the agent's clock is.
	// For a credential of less than 40 minutes, a quarter of its lifetime does.
	minInterval = 10 * time.Minute
)

// At returns when to renew a credential: at 75 to 80 % of its lifetime after
// start. The credential itself determines the jitter. If the agent's clock was
// behind the hub's when the credential was received, the caller passes an
// earlier start. If the clock is ahead, each new credential would be due at
// once. So At waits after receipt for minInterval or a quarter of a shorter
// lifetime, and never less than least.
func At(credential []byte, start time.Time, lifetime time.Duration, received, now time.Time,
	least time.Duration) time.Time {
	sum := sha256.Sum256(credential)
	fraction := renewFraction - maxJitter*float64(binary.BigEndian.Uint32(sum[:]))/(1<<32)
	due := start.Add(time.Duration(fraction * float64(lifetime)))
	bound := received.Add(max(min(lifetime/4, minInterval), least))
	// If the clock was set back since receipt, the time since receipt is
	// unknown.
	if received.After(now) || due.After(bound) {
		return due
	}
	return bound
}
