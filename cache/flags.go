package cache

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Flags size a token cache. The zero value means no cache, and the default duration.
type Flags struct {
	// MaxSize is the number of tokens to keep. 0 means no cache.
	MaxSize int
	// MaxDuration bounds the time that a token is kept. 0 means MaxDuration, an hour.
	MaxDuration time.Duration
}

// BindFlags adds --token-cache-max-size and --token-cache-max-duration to fs.
func (f *Flags) BindFlags(fs *pflag.FlagSet) {
	f.MaxDuration = cmp.Or(f.MaxDuration, MaxDuration)
	fs.IntVar(&f.MaxSize, "token-cache-max-size", f.MaxSize, "Number of tokens to cache. 0 switches the cache off.")
	fs.DurationVar(&f.MaxDuration, "token-cache-max-duration", f.MaxDuration, "Longest time that a token is cached, at most 1h.")
}

// Validate reports values that cannot be used.
func (f *Flags) Validate() error {
	if f.MaxSize < 0 {
		return fmt.Errorf("--token-cache-max-size is 0 or more, not %d", f.MaxSize)
	}
	if err := checkMaxDuration(cmp.Or(f.MaxDuration, MaxDuration)); err != nil {
		return fmt.Errorf("--token-cache-max-duration: %w", err)
	}
	return nil
}

// New returns the cache that the flags describe.
func (f *Flags) New(opts ...Option) (*TokenCache, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	maxDuration := WithMaxDuration(cmp.Or(f.MaxDuration, MaxDuration))
	return NewTokenCache(f.MaxSize, append([]Option{maxDuration}, opts...)...)
}
