// Package before is a small source controller on github.com/fluxcd/pkg/auth.
// Package after is its port to workloadid.
package before

import (
	"github.com/fluxcd/pkg/auth"
	"github.com/fluxcd/pkg/cache"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
)

const (
	metricsPrefix    = "gotk_token_"
	defaultCacheSize = 100
)

// Config holds the values of the flags. The program's own --feature-gates sets
// ObjectLevelWorkloadIdentity.
type Config struct {
	ObjectLevelWorkloadIdentity bool
	DefaultServiceAccount       string
	TokenCache                  cache.TokenFlags
}

// BindFlags adds the flags to fs.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.DefaultServiceAccount, auth.ControllerFlagDefaultServiceAccount, "",
		"ServiceAccount for objects that name none.")
	c.TokenCache.BindFlags(fs, defaultCacheSize)
}

// Apply checks and applies the settings.
func (c *Config) Apply() error {
	auth.SetDefaultServiceAccount(c.DefaultServiceAccount)
	if c.ObjectLevelWorkloadIdentity {
		auth.EnableObjectLevelWorkloadIdentity()
	}
	if auth.InconsistentObjectLevelConfiguration() {
		return auth.ErrInconsistentObjectLevelConfiguration
	}
	return nil
}

// NewTokenCache returns the token cache, or nil if it is off.
func (c *Config) NewTokenCache(registry prometheus.Registerer) (*cache.TokenCache, error) {
	if c.TokenCache.MaxSize <= 0 {
		return nil, nil
	}
	return cache.NewTokenCache(c.TokenCache.MaxSize, cache.WithMaxDuration(c.TokenCache.MaxDuration),
		cache.WithMetricsRegisterer(registry), cache.WithMetricsPrefix(metricsPrefix))
}
