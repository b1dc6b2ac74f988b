package doctor

import (
	"errors"
	"net/http"
	"strings"
)

var errLedAway = errors.New("the registry leads elsewhere, where its password does not go")

// registryWay is how a registry is asked, and who hands out its tokens: that host alone, over TLS. A registry names whoever is
// to get its password, and go-containerregistry follows redirects on the way; those of the clouds hand out tokens themselves.
type registryWay struct {
	next http.RoundTripper
	host string
}

// noAnswer is the error of a request to which there was no answer. All others of go-containerregistry may repeat answers.
type noAnswer struct{ error }

func (u noAnswer) Unwrap() error { return u.error }

func (w registryWay) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || !strings.EqualFold(r.URL.Host, w.host) {
		return nil, noAnswer{errLedAway}
	}
	if k := knownTo(r.Context()); k != nil { // the registry's own token is among what it carries
		k.addRequest(r)
	}
	resp, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, noAnswer{err}
	}
	resp.Header.Del("Location") // a client follows nothing then
	return resp, nil
}
