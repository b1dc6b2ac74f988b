package doctor

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// WatchCredentials has Run, RunBootstrap and RunEnrolment see what clients send that are made from the config from now on, so
// that no finding repeats it: an exec plugin, an auth provider or a WrapTransport makes credentials that are nowhere in a
// config. Call it before making the Client or the Reader that they get, and give them the same config as well. Without it they
// know what the config's plugin makes before and after the checks, which may not be all if the API server refuses it in
// between. It changes the config's WrapTransport. What clients send outside of a run is held for the next ones, the last few
// values, as long as the config or a client is.
func WatchCredentials(config *rest.Config) {
	w := &watchedCredentials{}
	// The first is the innermost: it sees what all others have done to a request.
	config.WrapTransport = transport.Wrappers(w.wrap, config.WrapTransport)
}

// watchedCredentials are what a config's clients have sent outside of a run: a client's look-up of kinds knows no context.
type watchedCredentials struct {
	mu   sync.Mutex
	seen []*http.Request // with the headers in carriers alone
}

const maxWatched = 32

func (w *watchedCredentials) wrap(next http.RoundTripper) http.RoundTripper {
	return credentialWatcher{w, next}
}

type credentialWatcher struct {
	*watchedCredentials
	next http.RoundTripper
}

func (c credentialWatcher) RoundTrip(r *http.Request) (*http.Response, error) {
	c.note(r)
	return c.next.RoundTrip(r)
}

// WrappedRoundTripper is how client-go finds the transport in it.
func (c credentialWatcher) WrappedRoundTripper() http.RoundTripper { return c.next }

func (w *watchedCredentials) note(r *http.Request) {
	run := knownTo(r.Context())
	w.mu.Lock()
	defer w.mu.Unlock()
	if run != nil {
		run.addRequest(r)
		for _, earlier := range w.seen {
			run.addRequest(earlier)
		}
		return
	}
	kept := &http.Request{Header: http.Header{}}
	for _, name := range carriers() {
		if values := r.Header.Values(name); len(values) > 0 {
			kept.Header[name] = slices.Clone(values)
		}
	}
	if len(kept.Header) == 0 || len(w.seen) > 0 && sameCarriers(w.seen[len(w.seen)-1], kept) {
		return
	}
	if len(w.seen) >= maxWatched {
		w.seen = slices.Delete(w.seen, 0, 1)
	}
	w.seen = append(w.seen, kept)
}

func sameCarriers(a, b *http.Request) bool {
	for _, name := range carriers() {
		if !slices.Equal(a.Header.Values(name), b.Header.Values(name)) {
			return false
		}
	}
	return true
}

// watchedConfig is a copy whose requests tell the run in their context what they carry. It is nil if the config is.
func watchedConfig(config *rest.Config) *rest.Config {
	if config == nil {
		return nil
	}
	config = rest.CopyConfig(config)
	WatchCredentials(config)
	return config
}

// learn has a run know the credentials of a config: what is in it, and what its plugin or its WrapTransport makes. It sends
// nothing.
func learn(ctx context.Context, config *rest.Config, who string) {
	k := knownTo(ctx)
	if config == nil || k == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	k.add(config.BearerToken)
	k.addLogin(config.Username, config.Password)
	if config.BearerTokenFile != "" {
		if token, err := readToken(ctx, config.BearerTokenFile); err == nil {
			k.add(token)
		}
	}
	if config.ExecProvider == nil && config.AuthProvider == nil && config.WrapTransport == nil && config.Proxy == nil {
		return
	}
	dry := rest.CopyConfig(config)
	dry.WrapTransport = transport.Wrappers(func(http.RoundTripper) http.RoundTripper { return unsent{} }, config.WrapTransport)
	// A failure is that of the client as well, which the checks tell.
	_ = ending(ctx, who, func() error { return rehearse(ctx, dry, k) }, func(err error) error { return err })
}

// rehearse makes a request as the config's clients would, and learns from it.
func rehearse(ctx context.Context, config *rest.Config, k *known) error {
	client, err := httpClientFor(ctx, config)
	if err != nil {
		return err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), nil)
	if err != nil {
		return err
	}
	if config.Proxy != nil {
		if u, err := config.Proxy(req); err == nil {
			k.addURL(u)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// unsent is a transport that takes note of a request and sends it nowhere.
type unsent struct{}

func (unsent) RoundTrip(r *http.Request) (*http.Response, error) {
	if k := knownTo(r.Context()); k != nil {
		k.addRequest(r)
	}
	return &http.Response{Status: "204 No Content", StatusCode: http.StatusNoContent, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// lastWords is the time after the checks in which a run learns what its clients have come to send, and most of it what a short
// time-out leaves for that.
func lastWords(timeout time.Duration) time.Duration {
	const most, share = 250 * time.Millisecond, 10
	return min(most, timeout/share)
}
