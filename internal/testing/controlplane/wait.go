package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// until asks again and again, since what the API server has stored takes effect
// when its own watches bring it.
func until(what string, done func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("within %s %s: %w", patience, what, errOr(err, ctx.Err()))
		}
	}
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// WaitReady waits until the API server has read what decides on requests, such
// as roles. It calls itself healthy before.
func (c *Cluster) WaitReady() error {
	transport, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	return until("the API server does not become ready", func(ctx context.Context) (bool, error) {
		return isOK(ctx, transport, c.issuer+"/readyz")
	})
}

func isOK(ctx context.Context, client *http.Client, url string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	_ = resp.Body.Close() // the status is all that counts
	return resp.StatusCode == http.StatusOK, nil
}

// WaitAllowed waits until the API server goes by a rule that it has stored.
func (c *Cluster) WaitAllowed(spec authorizationv1.SubjectAccessReviewSpec) error {
	return until(fmt.Sprintf("the API server does not allow %+v", spec), func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		err := c.client.Create(ctx, review)
		return review.Status.Allowed, err
	})
}
