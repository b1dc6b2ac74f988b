package bootstrap

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// redirectError is a refused redirect.
type redirectError struct{ to string }

func (e *redirectError) Error() string {
	return fmt.Sprintf("refused to follow a redirect to %q", e.to)
}

func refuseRedirects(r *http.Request, _ []*http.Request) error {
	return &redirectError{r.URL.Scheme + "://" + r.URL.Host}
}

const (
	maxRedirects = 5
	maxHeader    = 64 << 10
)

// stayOnHTTPS follows a few redirects that are verified like the first request.
func stayOnHTTPS(r *http.Request, via []*http.Request) error {
	if r.URL.Scheme != "https" || len(via) > maxRedirects {
		return &redirectError{r.URL.Scheme + "://" + r.URL.Host}
	}
	return nil
}

// fetch gets a document without credentials, within limits of time and size.
// Its errors do not hold the URL.
func fetch(ctx context.Context, address string, config *tls.Config,
	redirects func(*http.Request, []*http.Request) error, limit int64,
) (status int, body []byte, err error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader}
	client := &http.Client{Transport: transport, CheckRedirect: redirects}
	ctx, cancel := context.WithTimeout(ctx, defaultRequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, withoutURL(err)
	}
	req.Header.Set("Accept", "application/json, application/yaml, */*")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, withoutURL(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or dropped
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err == nil && int64(len(body)) > limit:
		err = fmt.Errorf("the answer is larger than %d bytes", limit)
	case err == nil:
		// A server that notices the timeout may cut its answer so that it looks
		// complete.
		err = ctx.Err()
	}
	return resp.StatusCode, body, err
}

// withoutURL drops the URL from an error. The caller names it, and its query
// may be a secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
