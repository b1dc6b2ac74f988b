package issuer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
)

// Publisher publishes the documents of one issuer. Set the fields before the
// first use, and do not change them later. It is safe for concurrent use, and
// several Publishers may share a [Store].
//
// A Publisher is a manager.Runnable that needs no leader election.
type Publisher struct {
	// Cluster reads the keys at /openid/v1/jwks. Every ServiceAccount may read
	// them (system:service-account-issuer-discovery).
	Cluster *rest.Config
	// Issuer is the "iss" of the cluster's tokens, an https URL without query
	// and fragment. It may also be a former issuer during a move.
	Issuer string
	// Store keeps the files.
	Store Store
	// MaxTokenLifetime is the longest lifetime of a token that the API server
	// issues (--service-account-max-token-expiration). The Publisher refuses
	// less than an hour and more than 100 years. Zero means the value that
	// another publisher has set for this Store, or else 24 hours. A key stays
	// published for this long after it was last shown. It stays longer if the
	// record of the Store named a longer lifetime meanwhile.
	MaxTokenLifetime time.Duration

	// Logger receives each publication and each failure. Optional.
	Logger logr.Logger

	once    sync.Once
	invalid error // names the invalid field
	cluster *keysClient
}

// Result lists the changes of a Publish.
type Result struct {
	// Written lists the files that were written, in order. It is empty if
	// everything was published already.
	Written []string `json:"written,omitempty"`
	// Added and Removed are the IDs of keys that this Publish has published or
	// unpublished.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Leaving lists the keys that the API server no longer shows. The time is
	// when a key is unpublished, if no read returns it until then.
	Leaving map[string]time.Time `json:"leaving,omitempty"`
	// Warnings are sentences. They name the keys whose tokens a cloud does not
	// accept, and removed keys that the API server still shows.
	Warnings []string `json:"warnings,omitempty"`
}

// self makes errors of type provider.Error.
const self = provider.Name("issuer")

const (
	defaultLifetime, minLifetime = 24 * time.Hour, time.Hour
	maxLifetime                  = 100 * 365 * 24 * time.Hour
	// interval is the time between two publications of Start. jitter is the
	// part of it that may be added. Their sum lies far below maxGap.
	interval, jitter = time.Minute, 0.1
	// publishTimeout bounds a Publish with all its tries.
	publishTimeout = 2 * time.Minute
)

// prepare checks the fields, once.
func (p *Publisher) prepare() error {
	p.once.Do(func() {
		if p.invalid = p.check(); p.invalid == nil {
			p.cluster, p.invalid = newKeysClient(p.Cluster)
		}
	})
	return p.invalid
}

func (p *Publisher) check() error {
	switch {
	case p.Cluster == nil:
		return self.Misconfigured("set Cluster to the configuration of a client of the API server",
			"the publisher has no Cluster")
	case p.Store == nil:
		return self.Misconfigured("set Store to where the documents are served from", "the publisher has no Store")
	case p.MaxTokenLifetime != 0 && p.MaxTokenLifetime < minLifetime, p.MaxTokenLifetime > maxLifetime:
		return self.Misconfigured("set it to the lifetime of the longest token that the API server issues",
			"the MaxTokenLifetime is %s, outside of %s to %s", p.MaxTokenLifetime, minLifetime, maxLifetime)
	}
	if err := ValidateURL(p.Issuer); err != nil {
		return self.Misconfigured("name the issuer (iss) of the cluster's tokens, such as https://oidc.example.com/cluster-1",
			"%v", err)
	}
	return nil
}

// ValidateURL returns an error for an issuer whose documents no cloud can read.
// Its text begins with "the issuer".
func ValidateURL(issuer string) error {
	_, err := address.Parse("issuer", issuer, address.Path)
	return err
}

// Start publishes every minute until ctx ends. It implements manager.Runnable.
// It returns an error only for invalid fields, and logs all others.
func (p *Publisher) Start(ctx context.Context) error {
	if err := p.prepare(); err != nil {
		return err
	}
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		_, _ = p.Publish(ctx) // Publish logs
	}, interval, jitter, true)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *Publisher) NeedLeaderElection() bool { return false }

// Publish reads the keys of the API server once and publishes the changes. It
// fails with a [*provider.Error] or an error of the [Store].
func (p *Publisher) Publish(ctx context.Context) (Result, error) {
	var warnings []string
	result, err := p.publish(ctx, func(ctx context.Context, r record) (record, error) {
		// Keys read before the record could start the absence of a key that
		// another publisher has seen since.
		shown, err := p.cluster.keys(ctx)
		if err != nil {
			return r, err
		}
		r = r.look(shown, time.Now(), p.MaxTokenLifetime)
		warnings = shown.warnings()
		if withheld := shown.lacking(r.published()); len(withheld) > 0 {
			p.Logger.Info("the API server shows keys that were removed; they stay unpublished", "keys", withheld)
			warnings = append(warnings, fmt.Sprintf("The API server shows keys that were removed and stay unpublished: %.100q. "+
				"Take them from it, and give new keys other IDs.", withheld[:min(len(withheld), 8)]))
		}
		return r, nil
	})
	result.Warnings = warnings
	return result, err
}

// RemoveKey unpublishes a key at once, because its private key has leaked. From
// then on the record excludes the key, even while the API server still shows
// it, and under another ID too. RemoveKey asks the API server only about a key
// that was never published.
func (p *Publisher) RemoveKey(ctx context.Context, id string) (Result, error) {
	return p.publish(ctx, func(ctx context.Context, r record) (record, error) {
		shown, err := p.cluster.keys(ctx)
		if err != nil {
			p.Logger.Error(err, "removing the key without a look at the API server", "key", id)
		}
		return r.adopt(shown).remove(id)
	})
}

// publish changes the record, publishes the documents of the new record, and
// logs the result.
func (p *Publisher) publish(ctx context.Context, change change) (Result, error) {
	if err := p.prepare(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	result, err := p.update(ctx, change)
	switch {
	case err != nil:
		err = fmt.Errorf("publish %q: %w", p.Issuer, err)
		p.Logger.Error(err, "the issuer is not published")
	case len(result.Written) > 0:
		p.Logger.Info("published the issuer", "issuer", p.Issuer, "written", result.Written,
			"added", result.Added, "removed", result.Removed, "leaving", result.Leaving)
	}
	return result, err
}
