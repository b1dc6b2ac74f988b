package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/connlimit"
	"github.com/workloadid/workloadid/internal/quota"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// requestTimeout bounds the time until an answer. A client that waits a little
// longer always gets an answer.
const requestTimeout = 15 * time.Second

// DefaultMaxConnections is the number of open connections without
// [Options.MaxConnections].
const DefaultMaxConnections = 2048

// Options configures a [Server].
type Options struct {
	// Client reads IAMBindings and the IAMRoleAllowList, creates TokenReviews,
	// and writes the status of bindings. Use a manager's client, which reads
	// from informers. It needs v1alpha1.AddToScheme in its scheme and no rate
	// limit (rest.Config.QPS -1). Let the manager's cache strip labels,
	// annotations and managed fields of IAMBindings: tenants write them, and
	// the server reads none. Required.
	Client client.Client
	// Audience is the audience of the pods' tokens. No other service may accept
	// it. Required.
	Audience string
	// Cluster is a DNS label that starts the session names. It distinguishes
	// clusters whose servers may assume the same roles. Required.
	Cluster string
	// Cache holds the credentials. Size it for one entry per pod, one per
	// binding, and the server's own. Required.
	Cache *cache.TokenCache
	// CA returns the PEM certificates that sidecars are to trust, the same as
	// webhook.Options.CA. Each answer with credentials contains them. The
	// server logs a bundle that sidecars would ignore, and leaves it out. Nil
	// sends none.
	CA func() []byte
	// AuthOptions apply to all credentials, for example auth.WithSTSRegion. An
	// endpoint of auth.WithSTSEndpoint has to belong to AWS.
	AuthOptions []auth.Option
	// Events records Events of pods and bindings. Nil records nothing.
	Events events.EventRecorder
	// Logger receives one line for each answer with credentials. The zero value
	// drops it.
	Logger logr.Logger
	// Registerer takes the metrics. Nil drops them.
	Registerer prometheus.Registerer
	// MaxConnections bounds the open connections of Listen, each of which takes
	// up to 100 KiB. Default: DefaultMaxConnections.
	MaxConnections int
	// Series holds the series of the cache's metrics by IAMBinding, such as
	// *metrics.Metrics. The server removes the series of deleted bindings,
	// because tenants choose the names. Nil removes nothing.
	Series interface {
		DeleteEventsForObject(kind, name, namespace, operation string)
	}
}

// Server is the [http.Handler]. It is safe for concurrent use.
type Server struct {
	options    Options
	provider   *aws.Provider
	metrics    metrics
	reviews    quota.Slots // limits the TokenReviews in flight
	namespaces *namespaceLimits
}

// New returns a server. It needs [Server.SetupWithManager] before the manager
// starts.
func New(options Options) (*Server, error) {
	switch {
	case options.Client == nil:
		return nil, errors.New("a server needs a client: set Options.Client to that of a manager")
	case options.Audience == "":
		return nil, errors.New("a server needs an audience that only it accepts: set Options.Audience")
	case !options.Cache.Enabled():
		return nil, errors.New("a server needs a cache: set Options.Cache to one with a capacity")
	}
	if err := checkCluster("Options.Cluster", options.Cluster); err != nil {
		return nil, err
	}
	if err := checkSTS(options.AuthOptions); err != nil {
		return nil, err
	}
	if options.MaxConnections <= 0 {
		options.MaxConnections = DefaultMaxConnections
	}
	s := &Server{options: options, provider: &aws.Provider{}, metrics: newMetrics(),
		reviews:    make(quota.Slots, maxReviews),
		namespaces: &namespaceLimits{buckets: map[string]*rate.Limiter{}}}
	return s, s.metrics.register(options.Registerer)
}

// checkSTS refuses services that imitate STS. Package aws never sends them the
// server's identity, so every pod would get 403.
func checkSTS(options []auth.Option) error {
	o := auth.Options{}
	for _, option := range options {
		option(&o)
	}
	if o.STSEndpoint == "" {
		return nil
	}
	// This Provider has no AllowedSTSHosts.
	return (&aws.Provider{}).ValidateOptions(&provider.Options{STSEndpoint: o.STSEndpoint, STSRegion: "us-east-1"})
}

// ServeHTTP answers one request, within 15 seconds. It never reads a body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	token, err := s.serve(ctx, r)
	result := resultIssued
	if err != nil {
		refused := refusalOf(err)
		refused.write(w)
		result = refused.result
	} else {
		s.writeCredentials(w, token)
	}
	s.metrics.requests.WithLabelValues(result).Observe(time.Since(start).Seconds())
}

func (s *Server) serve(ctx context.Context, r *http.Request) (*aws.Token, error) {
	bearerToken, err := bearer(r)
	if err != nil {
		return nil, err
	}
	pod, err := s.attest(ctx, bearerToken)
	if err != nil {
		return nil, err
	}
	connlimit.Prove(ctx)
	if err := s.namespaces.take(pod.namespace); err != nil {
		return nil, err
	}
	binding, err := s.binding(ctx, pod.namespace, pod.serviceAccount)
	if err != nil {
		return nil, s.reported(pod, nil, err)
	}
	token, err := s.credentials(ctx, binding, pod, minimumLifetime)
	if err != nil {
		return nil, s.reported(pod, binding, err)
	}
	s.options.Logger.Info("issued AWS credentials", "namespace", pod.namespace, "serviceAccount", pod.serviceAccount,
		"pod", pod.name, "podUID", pod.uid,
		"binding", binding.Name, "role", binding.Spec.AWS.RoleARN, "session", token.SessionName(), "accessKeyID",
		token.AccessKeyID(), "expiry", token.ExpiresAt().Format(time.RFC3339))
	return token, nil
}

// probeToken is an invalid token. The API server answers a TokenReview of it,
// and the answer grants nothing.
const probeToken = "readiness"

// Ready is a healthz.Checker. It succeeds once the informers have synced and
// the API server reviews tokens.
func (s *Server) Ready(r *http.Request) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if _, err := s.allowList(ctx); err != nil {
		return err
	}
	if err := s.options.Client.List(ctx, &v1alpha1.IAMBindingList{}, client.Limit(1)); err != nil {
		return fmt.Errorf("list IAMBindings: %w", err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: probeToken,
		Audiences: []string{s.options.Audience}}}
	if err := s.options.Client.Create(ctx, review); err != nil {
		return fmt.Errorf("create TokenReview: %w", err)
	}
	return nil
}
