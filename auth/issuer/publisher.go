package issuer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/workloadid/workloadid/internal/providers"
)

// Publisher publishes the documents of one issuer. Set the fields before the first use and do not change them after it. It is safe for
// concurrent use, and several Publishers may share a Store.
//
// A Publisher is a manager.Runnable that needs no leader election.
type Publisher struct {
	// Cluster reads the keys at /openid/v1/jwks. Every ServiceAccount may read them (system:service-account-issuer-discovery).
	Cluster *rest.Config
	// Issuer is the "iss" of the cluster's tokens, an https URL without query and fragment. It may also be a former issuer during a move.
	Issuer string
	// Store keeps the files.
	Store Store
	// MaxTokenLifetime is the lifetime of the longest token that the API server issues
	// (--service-account-max-token-expiration). Less than an hour and more than 100 years are refused. Zero means what
	// another publisher has set for this Store, or else 24 hours. A key stays published for this long after it was last
	// shown, or for longer if the record of the Store named a longer lifetime meanwhile.
	MaxTokenLifetime time.Duration

	// Logger, Events and Registerer are optional. Events are recorded on Object, such as the publisher's Pod or Deployment.
	// Metrics have the label "issuer". Publishers of one issuer in one process need a label more: prometheus.WrapRegistererWith.
	Logger     logr.Logger
	Events     events.EventRecorder
	Object     runtime.Object
	Registerer prometheus.Registerer

	once    sync.Once
	invalid error // what is wrong with the fields
	cluster *lookout
	metrics *metrics
}

// Result says what a Publish has changed.
type Result struct {
	// Written are the files that were written, in order. None: everything was published already.
	Written []string
	// Added, Removed are the IDs of keys that are published since, or no longer.
	Added, Removed []string
	// Leaving are the keys that the API server no longer shows, with the time at which they leave if no look shows them.
	Leaving map[string]time.Time
	// Warnings are sentences that name the keys whose tokens a cloud does not accept.
	Warnings []string

	keys int
}

// self makes errors of type provider.Error.
const self = providers.Name("issuer")

const (
	defaultLifetime, minLifetime = 24 * time.Hour, time.Hour
	maxLifetime                  = 100 * 365 * 24 * time.Hour
	// interval is the time between two looks of Start. It lies far below maxGap.
	interval = time.Minute
	// publishTimeout bounds a Publish with all its tries.
	publishTimeout = 2 * time.Minute
)

// prepare checks the fields, once.
func (p *Publisher) prepare() error {
	p.once.Do(func() {
		if p.invalid = p.check(); p.invalid != nil {
			return
		}
		if p.cluster, p.invalid = newLookout(p.Cluster); p.invalid == nil {
			p.metrics, p.invalid = newMetrics(p.Registerer, p.Issuer)
		}
	})
	return p.invalid
}

func (p *Publisher) check() error {
	switch {
	case p.Cluster == nil:
		return self.Misconfigured("set Cluster to the configuration of a client of the API server", "the publisher has no Cluster")
	case p.Store == nil:
		return self.Misconfigured("set Store to where the documents are served from", "the publisher has no Store")
	case p.MaxTokenLifetime != 0 && p.MaxTokenLifetime < minLifetime, p.MaxTokenLifetime > maxLifetime:
		return self.Misconfigured("set it to the lifetime of the longest token that the API server issues", "the MaxTokenLifetime is %s, outside of %s to %s", p.MaxTokenLifetime, minLifetime, maxLifetime)
	}
	if err := ValidateURL(p.Issuer); err != nil {
		return self.Misconfigured("name the issuer (iss) of the cluster's tokens, such as https://oidc.example.com/cluster-1", "%v", err)
	}
	return nil
}

// Publish looks at the API server once and publishes what has changed. Its errors are *provider.Error, or those of the Store.
func (p *Publisher) Publish(ctx context.Context) (Result, error) {
	return p.reported(ctx, func(ctx context.Context) (Result, error) {
		var shown keySet
		var reused []string
		result, err := p.update(ctx, func(r record) (_ record, err error) {
			// An older look would begin the absence of a key that another publisher has seen since.
			if shown, err = p.cluster.keys(ctx); err != nil {
				return r, err
			}
			if own := p.MaxTokenLifetime; own != 0 && r.Lifetime != 0 && own != r.lifetime() {
				p.Logger.Info("the record has another token lifetime; give all publishers of this issuer the longest one",
					"record", r.lifetime(), "own", own)
			}
			reused = r.reused(shown)
			return r.look(shown, time.Now(), p.MaxTokenLifetime), nil
		})
		result.Warnings = shown.warnings()
		if err == nil && len(reused) > 0 {
			err = self.Misconfigured("give the new keys other IDs", "keys that the API server shows are not published, because removed keys had their IDs: %.100q", reused[:min(len(reused), 8)])
		}
		return result, err
	})
}

// RemoveKey unpublishes a key at once, because its private key has leaked. The record keeps it out from then on, also while the
// API server still shows it, and under another ID. It needs no API server, except for a key that was never published.
func (p *Publisher) RemoveKey(ctx context.Context, id string) (Result, error) {
	return p.reported(ctx, func(ctx context.Context) (Result, error) {
		shown, err := p.cluster.keys(ctx)
		if err != nil {
			p.Logger.Error(err, "removing the key without a look at the API server", "key", id)
		}
		return p.update(ctx, func(r record) (record, error) { return r.adopt(shown).remove(id) })
	})
}

// reported runs one publication and reports what came of it.
func (p *Publisher) reported(ctx context.Context, run func(ctx context.Context) (Result, error)) (Result, error) {
	if err := p.prepare(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	result, err := run(ctx)
	if err != nil {
		err = fmt.Errorf("publish %q: %w", p.Issuer, err)
	}
	p.report(result, err)
	return result, err
}
