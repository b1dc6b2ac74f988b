// Package after is package before, ported to workloadid by
// docs/migrating-from-fluxcd.md.
package after

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
)

const (
	metricsPrefix    = "gotk_token_"
	defaultCacheSize = 100
)

// Config holds the values of the flags. The program's own --feature-gates sets
// ObjectLevelWorkloadIdentity.
type Config struct {
	auth.Settings
}

// BindFlags adds the flags to fs.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.TokenCache.MaxSize = defaultCacheSize
	c.Settings.BindFlags(fs, auth.FlagDefaultServiceAccount, auth.FlagMinimumLifetime, cache.FlagMaxSize,
		cache.FlagMaxDuration)
}

// Apply checks and applies the settings.
func (c *Config) Apply() error {
	return c.Validate()
}

// NewTokenCache returns the token cache, or nil if it is off.
func (c *Config) NewTokenCache(registry prometheus.Registerer) (*cache.TokenCache, *metrics.Metrics, error) {
	if c.TokenCache.MaxSize <= 0 {
		return nil, nil, nil
	}
	m, err := metrics.New(metricsPrefix, registry)
	if err != nil {
		return nil, nil, err
	}
	tokens, err := c.TokenCache.New(cache.WithObserver(m))
	return tokens, m, err
}
