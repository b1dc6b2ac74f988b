package issuer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/apiserver"
	"github.com/workloadid/workloadid/internal/transport"
)

// lookTimeout bounds the requests of one read of the keys.
const lookTimeout = 15 * time.Second

// keysClient reads the keys of an API server.
type keysClient struct {
	client *http.Client
	url    *url.URL
}

func newKeysClient(config *rest.Config) (*keysClient, error) {
	if err := apiserver.CheckVerified(config); err != nil {
		return nil, self.Misconfigured("", "%v", err)
	}
	config = rest.CopyConfig(config)
	// An HTTP/2 connection, shared with other clients of the process, stays
	// with one of several API servers. Each read of the keys opens a connection
	// of its own.
	config.NextProtos = []string{"http/1.1"}
	roundTripper, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	u.Path = path.Join("/", u.Path, KeysFile)
	return &keysClient{transport.Guard(&http.Client{Transport: roundTripper}), u}, nil
}

// keys returns the keys that an API server shows. The result is never empty.
func (l *keysClient) keys(ctx context.Context) (keySet, error) {
	const operation = "read the keys of the API server"
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answer, err := transport.Send(ctx, l.client, func() (*http.Request, error) {
		return &http.Request{Method: http.MethodGet, URL: l.url, Header: http.Header{}, Close: true}, nil
	}, nil)
	switch {
	case err != nil:
		return nil, self.Unanswered(operation, err)
	case answer.Status != http.StatusOK:
		return nil, refused(operation, answer)
	}
	set, err := parseKeySet(answer.Body)
	if err == nil && len(set) == 0 {
		err = fmt.Errorf("%w: there are no keys", errNoKeySet)
	}
	switch {
	case errors.Is(err, errNoKeySet):
		return nil, self.Unusable(operation, "the API server", "%s", err)
	case err != nil:
		return nil, self.Misconfigured("change the signing keys of the API server", "%s: %s", operation, err)
	}
	return set, nil
}

func refused(operation string, answer transport.Answer) error {
	e := self.Refused(operation, answer.Status, answer.Header)
	e.Message = "the API server refuses"
	switch answer.Status {
	case http.StatusUnauthorized:
		e.Reason, e.Remedy = provider.ErrDenied, "renew the credentials for the API server"
	case http.StatusForbidden:
		e.Reason, e.Remedy = provider.ErrDenied, "bind the user to the ClusterRole system:service-account-issuer-discovery"
	case http.StatusNotFound:
		e.Reason, e.Remedy = provider.ErrMisconfigured, "give the API server an issuer that is an https URL"
	}
	return e
}
