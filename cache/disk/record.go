package disk

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// record is the content of a file.
type record struct {
	Entry
	Minted time.Time
	// Sum is the SHA-256 of key, times and data: a damaged file must not become a credential.
	Sum []byte
}

func (r record) sum(key cache.Key) []byte {
	h := sha256.New()
	h.Write(key[:])
	_, _ = fmt.Fprintf(h, "%d %d\n", r.Minted.UnixNano(), r.Expires.UnixNano()) // a hash returns no error
	h.Write(r.Data)
	return h.Sum(nil)
}

const (
	softShare = 0.8
	maxMargin = time.Minute
)

// end returns when the entry may no longer be used: shortly before it expires, and at most an hour after it was minted.
func (r record) end() (life time.Duration, end time.Time) {
	life = min(r.Expires.Sub(r.Minted), cache.MaxDuration)
	return life, r.Minted.Add(life - min(maxMargin, life/10))
}

func (r record) valid(now time.Time) bool {
	_, end := r.end()
	return !r.Minted.IsZero() && now.Before(end) && !now.Add(maxMargin).Before(r.Minted)
}

func (r record) fresh(now time.Time) bool {
	life, _ := r.end()
	return r.valid(now) && now.Before(r.Minted.Add(time.Duration(softShare*float64(life))))
}
