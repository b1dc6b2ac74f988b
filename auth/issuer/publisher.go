package issuer

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
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
	// MaxTokenLifetime is the lifetime of the longest token that the API server issues (--service-account-max-token-expiration). Zero means
	// 24 hours. A key stays published for this long after it was last shown.
	MaxTokenLifetime time.Duration
	// Interval is the time between two looks of Start. Zero means a minute. More than five minutes is refused, because gaps of over ten
	// minutes do not count.
	Interval time.Duration

	// Logger, Events and Registerer are optional. Events are recorded on Object, such as the publisher's Pod or Deployment.
	// Metrics have the label "issuer". Publishers of one issuer in one process need a label more: prometheus.WrapRegistererWith.
	Logger     logr.Logger
	Events     events.EventRecorder
	Object     runtime.Object
	Registerer prometheus.Registerer

	// unexported state follows
}

// Result says what a Publish has changed.
type Result struct {
	// Written are the files that were written, in order. None: everything was published already.
	Written []string
	// Added, Removed are the IDs of keys that are published since, or no longer.
	Added, Removed []string
	// Leaving are the keys that the API server no longer shows, with the time at which they leave if no look shows them.
	Leaving map[string]time.Time
	// Warnings name the keys whose tokens a cloud does not accept.
	Warnings []Warning
}

// Warning says that a cloud accepts no token that a key signs.
type Warning struct {
	Cloud          string // "azure" or "gcp"
	Key, Algorithm string
	Accepted       []string // the algorithms that the cloud accepts
}

// String returns a sentence for people.
func (w Warning) String() string { return "" }

// Publish looks at the API server once and publishes what has changed.
func (p *Publisher) Publish(ctx context.Context) (Result, error) { return Result{}, nil }

// RemoveKey unpublishes a key at once, because its private key has leaked. The record keeps it out from then on, also while the
// API server still shows it.
func (p *Publisher) RemoveKey(ctx context.Context, id string) (Result, error) { return Result{}, nil }

// Start publishes every Interval until ctx ends. It implements manager.Runnable.
func (p *Publisher) Start(ctx context.Context) error { return nil }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *Publisher) NeedLeaderElection() bool { return false }
