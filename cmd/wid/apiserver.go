package main

import (
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/transport"
)

// boundAnswers keeps an API server, or what claims to be one, from filling the memory and from keeping us waiting in vain.
func boundAnswers(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{transport.Bounded(next)} })
}

// patience has client-go try again only if there is time for it: if it runs out of time while it waits, it says nothing of
// what it waits for.
type patience struct{ next http.RoundTripper }

func (p patience) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Without it nobody follows a redirect, with the user's credentials, to wherever the server says.
	resp.Header.Del("Location")
	deadline, limited := r.Context().Deadline()
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	// client-go knows seconds only.
	if err == nil && limited && time.Until(deadline) < time.Duration(seconds)*time.Second+grace {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}
