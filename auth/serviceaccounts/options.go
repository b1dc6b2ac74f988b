package serviceaccounts

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

const (
	defaultSyncTimeout = 10 * time.Second
	defaultMaxAge      = time.Hour
	// A watch on which nothing happens says something when it is renewed at the latest: after five to ten minutes.
	minMaxAge = 15 * time.Minute
)

// Options say what to keep. The zero value keeps the ServiceAccounts of all namespaces, with the annotations that the providers of
// this module read.
type Options struct {
	// Namespace is the only one to read. Empty: all.
	Namespace string
	// LabelSelector picks ServiceAccounts, as a shard of a controller may want. Empty: all. The others count as not found.
	LabelSelector string
	// AnnotationPrefixes are those of annotations to keep besides those of this module's providers. A whole name is a prefix too, and better: a tenant can fill 256 kB under any other.
	AnnotationPrefixes []string
	// SyncTimeout is how long Get waits for the first reading. Zero: 10 seconds.
	SyncTimeout time.Duration
	// MaxAge is how long after the last contact with the API server Get still answers from memory. Zero: an hour, after
	// which most credentials have ended too. At least 15 minutes; negative: for ever.
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
