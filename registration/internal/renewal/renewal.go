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
	// Credentials of less than 40 minutes have less.
	minInterval = 10 * time.Minute
)

// At returns when to renew a credential: at 75 to 80 % of its lifetime after
// start, by a jitter that the credential itself determines. The caller moves
// start forward if the agent's clock was behind the hub's when the credential
// was received. If the clock is ahead, the time since receipt is a bound, and
// at least least: otherwise each new credential would be due at once.
func At(credential []byte, start time.Time, lifetime time.Duration, received, now time.Time,
	least time.Duration) time.Time {
	sum := sha256.Sum256(credential)
	fraction := renewFraction - maxJitter*float64(binary.BigEndian.Uint32(sum[:]))/(1<<32)
	due := start.Add(time.Duration(fraction * float64(lifetime)))
	bound := received.Add(max(min(lifetime/4, minInterval), least))
	// a clock that was set back since then says nothing of the time since
	// receipt
	if received.After(now) || due.After(bound) {
		return due
	}
	return bound
}
