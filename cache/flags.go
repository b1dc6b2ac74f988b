package cache

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// Names of flags, for controllers that bind them one by one.
const (
	FlagMaxSize     = "token-cache-max-size"
	FlagMaxDuration = "token-cache-max-duration"
)

// Flags size a token cache. The zero value means no cache, and the default
// duration.
type Flags struct {
	// MaxSize is the number of tokens to keep. 0 and less mean no cache.
	MaxSize int
	// MaxDuration bounds the time that a token is kept. 0 means MaxDuration, an
	// hour; more than that counts as an hour.
	MaxDuration time.Duration
}

// BindFlags adds --token-cache-max-size and --token-cache-max-duration to fs.
func (f *Flags) BindFlags(fs *pflag.FlagSet) {
	f.MaxDuration = cmp.Or(f.MaxDuration, MaxDuration)
	fs.IntVar(&f.MaxSize, FlagMaxSize, f.MaxSize, "Number of tokens to cache. 0 switches the cache off.")
	fs.DurationVar(&f.MaxDuration, FlagMaxDuration, f.MaxDuration, "Longest time that a token is cached, at most 1h.")
}

// Validate reports values that cannot be used.
func (f *Flags) Validate() error {
	if err := checkMaxDuration(min(cmp.Or(f.MaxDuration, MaxDuration), MaxDuration)); err != nil {
		return fmt.Errorf("--%s: %w", FlagMaxDuration, err)
	}
	return nil
}

// Log tells the logger of values that do not count as they are.
func (f *Flags) Log(log logr.Logger) {
	if f.MaxDuration > MaxDuration {
		log.Info("Tokens are cached for an hour at most.", "flag", FlagMaxDuration, "value", f.MaxDuration.String())
	}
}

// New returns the cache that the flags describe.
func (f *Flags) New(opts ...Option) (*TokenCache, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	maxDuration := WithMaxDuration(min(cmp.Or(f.MaxDuration, MaxDuration), MaxDuration))
	return NewTokenCache(max(f.MaxSize, 0), append([]Option{maxDuration}, opts...)...)
}
