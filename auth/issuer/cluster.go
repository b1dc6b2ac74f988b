package issuer

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/apiserver"
	"github.com/workloadid/workloadid/internal/transport"
)

// lookTimeout bounds the requests of one look.
const lookTimeout = 15 * time.Second

// lookout reads the keys of an API server.
type lookout struct {
	client  *http.Client
	address string
}

func newLookout(config *rest.Config) (*lookout, error) {
	if err := apiserver.CheckVerified(config); err != nil {
		return nil, self.Misconfigured("", "%v", err)
	}
	config = rest.CopyConfig(config)
	// Other clients of the process share their HTTP/2 connection, which stays with one of several API servers. A look opens its own.
	config.NextProtos = []string{"http/1.1"}
	roundTripper, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport.BoundedTo(roundTripper, MaxFile),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &lookout{client, u.JoinPath(KeysFile).String()}, nil
}

const (
	readKeys  = "read the keys of the API server"
	apiServer = "the API server"
)

// keys returns the keys that an API server shows. The result is never empty.
func (l *lookout) keys(ctx context.Context) (keySet, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answer, err := transport.Send(ctx, l.client, func() (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.address, http.NoBody)
		if err != nil {
			return nil, err
		}
		req.Close = true
		return req, nil
	}, nil)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, self.Unusable(readKeys, apiServer, "it has more than %d bytes", MaxFile)
	case err != nil:
		return nil, self.Unanswered(readKeys, err)
	case answer.Status != http.StatusOK:
		return nil, refused(answer)
	}
	set, err := parseKeySet(answer.Body)
	switch {
	case errors.Is(err, errNoKeySet), err == nil && len(set) == 0:
		return nil, self.Unusable(readKeys, apiServer, "%s", cmp.Or(err, errors.New("there are no keys")))
	case err != nil:
		return nil, self.Misconfigured("change the signing keys of the API server", "%s: %s", readKeys, err)
	}
	return set, nil
}

func refused(answer transport.Answer) error {
	e := self.Refused(readKeys, answer)
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
