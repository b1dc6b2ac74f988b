package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/cache"
)

// GetClusterConfig returns a rest.Config for the cluster that the options of GetRESTConfig name. Every request gets a
// credential that is valid then, through the cache of the options, under the request's own context: the config may be used
// for as long as the cluster keeps its address. A credential that the cluster answers with 401 is not used again, so that
// the next request brings a new one (at most every ten seconds). The credential is only ever sent to the cluster's address.
//
// Options, Policy and ServiceAccount are checked for each request: deleting the ServiceAccount or a refusal of the Policy stops
// the next one. Without a cache the config itself keeps one credential, for 80 % of its lifetime.
//
// The proxy and the HTTP client of the options are for the provider's API; set those for the cluster on the result. The
// config is safe for concurrent use as rest.Configs are. Errors of requests are those of GetRESTConfig.
func GetClusterConfig(ctx context.Context, provider Provider, opts ...Option) (*rest.Config, error) {
	source := &clusterSource{provider: provider, turn: make(chan struct{}, 1)}
	source.opts = source.invalidated.observedBy(opts)
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
	obtained := time.Now()
	clone := r.Clone(r.Context())
	clone.Header.Set("Authorization", "Bearer "+credential.BearerToken())
	resp, err := t.next.RoundTrip(clone)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.source.invalidated.set(obtained)
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

// clusterSource gets the credentials of one config. Without a TokenCache it also keeps the last one.
type clusterSource struct {
	provider    Provider
	opts        []Option
	invalidated invalidation

	turn chan struct{} // the lock of kept; a caller stops waiting for it when its context ends
	kept keptToken
}

// keptToken is a token until it is due for renewal.
type keptToken struct {
	key          cache.Key
	token        Token
	since, until time.Time
	lifetime     time.Duration
}

func (s *clusterSource) get(ctx context.Context) (*RESTConfig, error) {
	return getRESTConfig(ctx, s.provider, s, s.opts)
}

// getOrSet takes the place of the TokenCache in a call whose options have been checked. One caller at a time makes an exchange.
func (s *clusterSource) getOrSet(ctx context.Context, c *call, req cache.Request) (Token, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.turn }()
	if s.kept.serves(req.Key, c.opts.invalidBefore, c.opts.MinimumLifetime, time.Now()) {
		return s.kept.token, nil
	}
	token, _, err := c.opts.Cache.GetOrSet(ctx, req)
	if err != nil {
		return nil, err
	}
	const share = 0.8
	now := time.Now()
	lifetime := token.GetDuration()
	s.kept = keptToken{key: req.Key, token: token, since: now, until: now.Add(time.Duration(float64(lifetime) * share)), lifetime: lifetime}
	return token, nil
}

// serves reports whether the token may be returned. Both clocks count: the wall clock may be set back, and the monotonic one,
// which Round drops, stands still while a machine is suspended.
func (k *keptToken) serves(key cache.Key, invalidBefore time.Time, minimum time.Duration, now time.Time) bool {
	const atLeast = 10 * time.Second // as cache.Request.InvalidBefore
	return k.token != nil && k.key == key && (k.since.After(invalidBefore) || now.Sub(k.since) < atLeast) &&
		now.Before(k.until) && now.Round(0).Before(k.until.Round(0)) &&
		k.token.GetDuration() >= min(minimum, k.lifetime/4*3)
}
