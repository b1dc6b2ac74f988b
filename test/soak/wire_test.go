package soak

import (
	"context"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// exchangeRequests counts the requests of one exchange. It travels in the
// exchange's context.
type exchangeRequests struct {
	side *side
	sent atomic.Int64
}

type exchangeRequestsKey struct{}

func (s *side) countRequests(ctx context.Context) (context.Context, *exchangeRequests) {
	n := &exchangeRequests{side: s}
	return context.WithValue(ctx, exchangeRequestsKey{}, n), n
}

// counted is the way to the cloud.
type counted struct {
	*http.Transport
	environment *environment
}

func (c *counted) RoundTrip(req *http.Request) (*http.Response, error) {
	n, ok := req.Context().Value(exchangeRequestsKey{}).(*exchangeRequests)
	if !ok {
		return c.Transport.RoundTrip(req)
	}
	n.sent.Add(1)
	stats := c.environment.phase().of(n.side) // the phase that it began in
	resp, err := c.Transport.RoundTrip(req)
	if err != nil {
		stats.brokenRequests.Add(1)
	}
	return resp, err
}

// watched is the way to the API server.
type watched struct {
	client.Client
	environment *environment
}

func (c *watched) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	t := c.environment.byKey[key]
	stats := c.environment.phase().of(t.side)
	err := c.Client.Get(ctx, key, obj, opts...)
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		stats.failedReads.Add(1)
	}
	return err
}

func (c *watched) SubResource(name string) client.SubResourceClient {
	return &watchedToken{c.Client.SubResource(name), c.environment}
}

type watchedToken struct {
	client.SubResourceClient
	environment *environment
}

func (c *watchedToken) Create(ctx context.Context, obj, request client.Object,
	opts ...client.SubResourceCreateOption) error {
	t := c.environment.byKey[client.ObjectKeyFromObject(obj)]
	stats := c.environment.phase().of(t.side)
	err := c.SubResourceClient.Create(ctx, obj, request, opts...)
	switch {
	case err == nil:
		stats.tokenRequests.Add(1)
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		stats.failedTokenRequests.Add(1)
	}
	return err
}
