package exchange

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

const opDiscovery = "look up the token endpoint"

// endpoint returns the address of the token endpoint. The issuer's metadata are read without holding a lock: callers that
// are first at the same time all read them, each through the proxy of its own, and a failure is not remembered.
func (p *Provider) endpoint(ctx context.Context, httpClient *http.Client) (string, error) {
	if p.Endpoint != "" {
		return p.Endpoint, nil
	}
	if known := p.discovered.Load(); known != nil {
		return *known, nil
	}
	endpoint, err := p.discover(ctx, httpClient)
	if err != nil {
		return "", err
	}
	p.discovered.Store(&endpoint)
	return endpoint, nil
}

// discover tries the metadata of RFC 8414 first, and those of OpenID Connect where there are none.
func (p *Provider) discover(ctx context.Context, httpClient *http.Client) (string, error) {
	e := &auth.Error{}
	for _, address := range metadataURLs(p.IssuerURL) {
		answer, err := transport.Send(ctx, httpClient, func() (*http.Request, error) { return getJSON(ctx, address) }, nil)
		if err != nil {
			return "", p.discoveryError(&auth.Error{Message: transport.Message(err), Err: err})
		}
		document, err := oauth.ParseObject(answer.Body)
		if err == nil && answer.Status == http.StatusOK {
			return p.tokenEndpoint(document)
		}
		e = &auth.Error{StatusCode: answer.Status, Message: "it does not hand out its metadata as a JSON object",
			Wait: transport.RetryAfter(answer.Header, time.Now())}
		if answer.Status == http.StatusTooManyRequests {
			e.Reason = auth.ErrThrottled
		}
		if e.Reason != "" || answer.Status >= http.StatusInternalServerError {
			break // the next one would fare no better
		}
	}
	return "", p.discoveryError(e)
}

func getJSON(ctx context.Context, address string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err == nil {
		req.Header.Set("Accept", "application/json")
	}
	return req, err
}

// metadataURLs are those of RFC 8414, section 3.1, and of OpenID Connect Discovery 1.0, section 4.1.
func metadataURLs(issuer string) []string {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil // ValidateOptions has parsed it before
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	return []string{
		origin + "/.well-known/oauth-authorization-server" + path,
		origin + path + "/.well-known/openid-configuration",
	}
}

// tokenEndpoint believes metadata that are the issuer's own, and an endpoint at a host that may have the tokens.
func (p *Provider) tokenEndpoint(document oauth.Object) (string, error) {
	// RFC 8414, section 3.3: identical, or somebody else's.
	if issuer := document.Text("issuer"); issuer != p.IssuerURL {
		return "", p.discoveryError(&auth.Error{Reason: auth.ErrMisconfigured,
			Message: fmt.Sprintf("its metadata are those of %.300q", issuer),
			Remedy:  "set Provider.IssuerURL to exactly what the server's metadata say, a slash at the end included"})
	}
	endpoint := document.Text("token_endpoint")
	u, err := parseEndpoint(endpoint)
	if err != nil {
		return "", p.discoveryError(&auth.Error{Reason: auth.ErrMisconfigured,
			Message: err.Error(),
			Remedy:  "correct the server's metadata, or set Provider.Endpoint"})
	}
	if host, _ := address.Canonical(u); !slices.Contains(p.learn().hosts, host) {
		return "", p.discoveryError(&auth.Error{Reason: auth.ErrMisconfigured,
			Message: fmt.Sprintf("its token endpoint is at another host, %q", u.Host),
			Remedy:  "add that to Provider.AllowedEndpointHosts if it may have the tokens of ServiceAccounts"})
	}
	return endpoint, nil
}

func (p *Provider) discoveryError(e *auth.Error) error {
	e.Operation = opDiscovery
	e.Message = fmt.Sprintf("issuer %q: %s", p.IssuerURL, redact.Line(e.Message))
	if e.Reason == "" {
		e.Reason = auth.ErrUnavailable
	}
	if e.Remedy == "" {
		e.Remedy = "check Provider.IssuerURL and that the server is reachable"
	}
	return e
}
