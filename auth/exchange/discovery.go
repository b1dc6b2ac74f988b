package exchange

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

const opDiscovery = "look up the token endpoint"

// endpoint returns the address of the token endpoint. It holds no lock while it
// reads the issuer's metadata, so the first concurrent callers all read them,
// each through its own proxy. It does not remember a failure.
func (p *Provider) endpoint(ctx context.Context, httpClient *http.Client) (*url.URL, error) {
	if known := cmp.Or(p.learn().endpoint, p.discovered.Load()); known != nil {
		return known, nil
	}
	endpoint, problem := p.discover(ctx, httpClient)
	if problem != nil {
		problem.Operation = opDiscovery
		problem.Message = fmt.Sprintf("issuer %q: %s", p.IssuerURL, redact.Line(problem.Message))
		return nil, problem
	}
	p.discovered.Store(endpoint)
	return endpoint, nil
}

// discover tries the metadata of RFC 8414 first, then OpenID Connect's.
func (p *Provider) discover(ctx context.Context, httpClient *http.Client) (endpoint *url.URL, problem *auth.Error) {
	for _, address := range p.learn().metadata {
		answer, err := transport.Send(ctx, httpClient, func() (*http.Request, error) { return getJSON(ctx, address) }, nil)
		problem = self.Unavailable("", "check the issuer, and that the server is reachable",
			"it does not serve its metadata as a JSON object").About(optionIssuer)
		if err != nil {
			problem.Message, problem.Err = transport.Message(err), err
			return nil, problem
		}
		document, err := exactjson.ParseObject(answer.Body)
		if err == nil && answer.Status == http.StatusOK {
			return p.tokenEndpoint(document)
		}
		problem.StatusCode, problem.Wait = answer.Status, transport.RetryAfter(answer.Header, time.Now())
		if answer.Status == http.StatusTooManyRequests {
			problem.Reason = auth.ErrThrottled
		}
		if problem.Reason == auth.ErrThrottled || answer.Status >= http.StatusInternalServerError {
			break // the next URL would fail in the same way
		}
	}
	return nil, problem
}

func getJSON(ctx context.Context, address string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err == nil {
		req.Header.Set("Accept", "application/json")
	}
	return req, err
}

// tokenEndpoint accepts metadata only of the configured issuer, and an endpoint
// only at an allowed host.
func (p *Provider) tokenEndpoint(document exactjson.Object) (*url.URL, *auth.Error) {
	// RFC 8414, section 3.3, demands that they are identical.
	if issuer := document.Text("issuer"); issuer != p.IssuerURL {
		return nil, self.Misconfigured("use exactly the issuer of the server's metadata, a slash at the end included",
			"its metadata are those of %.300q", issuer).About(optionIssuer)
	}
	u, err := parseEndpoint(document.Text("token_endpoint"))
	if err != nil {
		return nil, self.Misconfigured("correct the server's metadata, or set the token endpoint", "%v",
			err).About(optionEndpoint)
	}
	if host, _ := address.Canonical(u); !slices.Contains(p.learn().hosts, host) {
		return nil, self.Misconfigured("allow that host if it may have the tokens of ServiceAccounts",
			"its token endpoint is at another host, %q", u.Host).About("exchange.Provider.AllowedEndpointHosts")
	}
	return u, nil
}
