package issuer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/transport"
)

// lookTimeout bounds one request for the keys.
const lookTimeout = 15 * time.Second

// lookout reads the keys of an API server.
type lookout struct {
	client  *http.Client
	address string
}

func newLookout(config *rest.Config) (*lookout, error) {
	config = rest.CopyConfig(config)
	// HTTP/2 would keep to one of several API servers. A look has a connection of its own.
	config.NextProtos = []string{"http/1.1"}
	roundTripper, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &lookout{address: u.JoinPath(KeysFile).String(), client: &http.Client{Transport: transport.BoundedTo(roundTripper, MaxFile), Timeout: lookTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// keys returns the keys that an API server shows. The result is never empty.
func (l *lookout) keys(ctx context.Context) (keySet, error) {
	answer, err := transport.Send(ctx, l.client, func() (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.address, http.NoBody)
		if err != nil {
			return nil, err
		}
		req.Close = true
		return req, nil
	}, nil)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		err = fmt.Errorf("the answer has more than %d bytes", MaxFile)
	}
	if err == nil && answer.Status != http.StatusOK {
		err = &statusError{answer.Status}
	}
	var set keySet
	if err == nil {
		set, err = parseKeySet(answer.Body)
	}
	if err == nil && len(set) == 0 {
		err = errors.New("there are no keys")
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of the API server at %q: %w", l.address, err)
	}
	return set, nil
}

// statusError is the error of an answer other than 200.
type statusError struct{ status int }

func (e *statusError) Error() string {
	text := fmt.Sprintf("it answers %d", e.status)
	switch e.status {
	case http.StatusUnauthorized:
		return text + ": renew the credentials"
	case http.StatusForbidden:
		return text + ": bind the user to the ClusterRole system:service-account-issuer-discovery"
	case http.StatusNotFound:
		return text + ": set --service-account-issuer of the API server to an https URL"
	}
	return text
}
