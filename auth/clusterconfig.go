package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// GetClusterConfig returns a rest.Config for the cluster that the options of GetRESTConfig name. Every request gets a
// credential that is valid then, through the cache of the options, under the request's own context: the config may be used
// for as long as the cluster keeps its address. A credential that the cluster answers with 401 is not used again, so that
// the next request brings a new one (at most every ten seconds). The credential is only ever sent to the cluster's address.
//
// Without a cache the config keeps its credential itself, until four fifths of its life have passed.
//
// The proxy and the HTTP client of the options are for the provider's API; set those for the cluster on the result. The
// config is safe for concurrent use as rest.Configs are. Errors of requests are those of GetRESTConfig.
func GetClusterConfig(ctx context.Context, provider Provider, opts ...Option) (*rest.Config, error) {
	source := newClusterSource(provider, opts)
	first, err := source.get(ctx)
	if err != nil {
		return nil, err
	}
	address, err := url.Parse(first.Host())
	if err != nil {
		return nil, misconfigured("", "the cluster address %q is not a URL", first.Host())
	}
	config := &rest.Config{Host: first.Host(), TLSClientConfig: rest.TLSClientConfig{CAData: first.CAData()}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &clusterTransport{next: next, source: source, host: address.Host}
	})
	return config, nil
}

// clusterTransport adds the credential to requests.
type clusterTransport struct {
	next   http.RoundTripper
	source *clusterSource
	host   string
}

// RoundTrip implements http.RoundTripper.
func (t *clusterTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	credential, err := t.credential(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the request's error is what counts
		}
		return nil, err
	}
	clone := r.Clone(r.Context())
	clone.Header.Set("Authorization", "Bearer "+credential.BearerToken())
	resp, err := t.next.RoundTrip(clone)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.source.reject(credential)
	}
	return resp, err
}

// credential is for the cluster only: a redirect to somewhere else gets none.
func (t *clusterTransport) credential(r *http.Request) (*RESTConfig, error) {
	if r.URL.Host != t.host || r.URL.Scheme != "https" {
		address, err := ParseClusterAddress(r.URL.Scheme + "://" + r.URL.Host)
		if err != nil || address != "https://"+t.host {
			return nil, &Error{Reason: ErrDenied, Operation: opCluster, Provider: t.source.provider.GetName(),
				Message: fmt.Sprintf("the credential is for the cluster at %q, not for %.300q", t.host, r.URL.Host)}
		}
	}
	return t.source.get(r.Context())
}

// WrappedRoundTripper is what client-go looks for to find the transport underneath.
func (t *clusterTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// clusterSource is where the credentials of one config come from.
type clusterSource struct {
	provider Provider
	opts     []Option
	cached   bool
	rejected atomic.Pointer[RESTConfig]

	// Without a cache: what is used meanwhile. turn holds one element while nobody is getting a new one.
	turn    chan struct{}
	current atomic.Pointer[keptConfig]
}

type keptConfig struct {
	config *RESTConfig
	since  time.Time
	until  time.Time
}

func newClusterSource(provider Provider, opts []Option) *clusterSource {
	s := &clusterSource{provider: provider, opts: slices.Clone(opts), turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	var o Options
	for _, opt := range s.opts {
		if opt != nil {
			opt(&o)
		}
	}
	s.cached = o.Cache.Enabled()
	return s
}

func (s *clusterSource) get(ctx context.Context) (*RESTConfig, error) {
	if s.cached {
		return getRESTConfig(ctx, s.provider, s.rejected.Load(), s.opts)
	}
	if kept := s.kept(); kept != nil {
		return kept, nil
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, (&call{provider: s.provider, operation: opCluster}).describe(ctx.Err())
	}
	defer func() { s.turn <- struct{}{} }()
	if kept := s.kept(); kept != nil {
		return kept, nil
	}
	config, err := GetRESTConfig(ctx, s.provider, s.opts...)
	if err != nil {
		return nil, err
	}
	const share = 0.8
	life := time.Duration(float64(config.GetDuration()) * share)
	now := time.Now()
	s.current.Store(&keptConfig{config: config, since: now, until: now.Add(life)})
	return config, nil
}

func (s *clusterSource) kept() *RESTConfig {
	kept, now := s.current.Load(), time.Now()
	// Both clocks count: the wall clock may be set back, and the monotonic one, which Round drops, stands still while a machine
	// is suspended.
	if kept == nil || !now.Before(kept.until) || !now.Round(0).Before(kept.until.Round(0)) {
		return nil
	}
	return kept.config
}

// reject has the next request bring a new credential, if c is still the one in use.
func (s *clusterSource) reject(c *RESTConfig) {
	if s.cached {
		s.rejected.Store(c)
		return
	}
	const atLeast = 10 * time.Second // as TokenCache.Reject
	if kept := s.current.Load(); kept != nil && kept.config == c && time.Since(kept.since) >= atLeast {
		s.current.CompareAndSwap(kept, nil)
	}
}
