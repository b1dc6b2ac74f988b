package bootstrap

import "time"

// WithInterval is for tests, which need not wait as long as a cluster takes.
func WithInterval(d time.Duration) DiscoverOption { return func(o *discovery) { o.interval = d } }
