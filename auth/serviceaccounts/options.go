package serviceaccounts

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

const (
	defaultSyncTimeout = 10 * time.Second
	defaultMaxAge      = time.Hour
	// A quiet watch makes contact when it is renewed, after five to ten minutes.
	minMaxAge = 15 * time.Minute
)

// Options select the ServiceAccounts and annotations to keep. The zero value keeps the ServiceAccounts of all namespaces, with
// the annotations that the providers of this module read.
type Options struct {
	// Namespace is the only namespace to read. Empty: all.
	Namespace string
	// LabelSelector selects ServiceAccounts, for example for a shard of a controller. Empty: all. Others count as not found.
	LabelSelector string
	// AnnotationPrefixes select further annotations to keep, for providers outside this module. A whole name is also a prefix.
	// Prefer it, because a tenant can fill 256 kB under a shorter one.
	AnnotationPrefixes []string
	// SyncTimeout bounds how long Get waits for the first list. Zero: 10 seconds.
	SyncTimeout time.Duration
	// MaxAge bounds how long after the last contact with the API server Get still answers from memory. Zero: an hour, after which
	// most credentials have expired too. Negative: no bound. The least value is 15 minutes.
	MaxAge time.Duration
}

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	if _, err := labels.Parse(o.LabelSelector); err != nil {
		return fmt.Errorf("the LabelSelector %.100q of the reader of ServiceAccounts is malformed: %w", o.LabelSelector, err)
	}
	if o.SyncTimeout < 0 {
		return fmt.Errorf("the SyncTimeout of the reader of ServiceAccounts is %s: set it to %s, or leave it out",
			o.SyncTimeout, defaultSyncTimeout)
	}
	if o.MaxAge > 0 && o.MaxAge < minMaxAge {
		return fmt.Errorf("the MaxAge of the reader of ServiceAccounts is %s, which a quiet watch may take: set it to %s or more",
			o.MaxAge, minMaxAge)
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = defaultSyncTimeout
	}
	if o.MaxAge == 0 {
		o.MaxAge = defaultMaxAge
	}
	return nil
}
