package azure

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/input"
	"github.com/workloadid/workloadid/internal/transport"
)

// Environment variables that AKS sets in pods with the annotation
// azure.workload.identity/use-identity-binding.
const (
	tokenProxyVariable = "AZURE_KUBERNETES_TOKEN_PROXY" //nolint:gosec // not a credential
	serverNameVariable = "AZURE_KUBERNETES_SNI_NAME"
	caFileVariable     = "AZURE_KUBERNETES_CA_FILE"
	caDataVariable     = "AZURE_KUBERNETES_CA_DATA"
)

// tokenProxy is the proxy for the token requests of AKS identity bindings. It
// is safe for concurrent use.
type tokenProxy struct {
	target     *url.URL
	serverName string // "" is the host of target
	caFile     string // "" is caData, or the roots of the system
	caData     []byte
	key        []string     // all of these, for the cache key
	base       *http.Client // without serverName and certificate authorities
	client     *http.Client // sends the requests that reroute has changed

	mu       sync.Mutex
	ca       []byte       // that trusting was made for
	trusting *http.Client // nil before the first request
}

// findTokenProxy reads the environment. It does not read the CA file, which AKS
// may be replacing.
func (p *Provider) findTokenProxy() (*tokenProxy, error) {
	if p.Audience != "" {
		return nil, self.Misconfigured("leave the provider's audience out", "identity bindings have an audience of their own")
	}
	text := os.Getenv(tokenProxyVariable)
	if text == "" {
		return nil, self.Misconfigured(
			`annotate the controller's pod with azure.workload.identity/use-identity-binding: "true"`,
			"identity bindings need the environment variable %s, which is not set", tokenProxyVariable)
	}
	target, err := address.Parse("token proxy of "+tokenProxyVariable, text, address.Path)
	if err != nil {
		return nil, self.Misconfigured("set it to https://<host>", "%v", err)
	}
	if target.Path == "" {
		target.Path = "/" // JoinPath would return a relative path
	}
	t := &tokenProxy{target: target, serverName: os.Getenv(serverNameVariable), caFile: os.Getenv(caFileVariable),
		caData: []byte(os.Getenv(caDataVariable)), base: p.clients.ForTokens(&provider.Options{})}
	if t.caFile != "" && len(t.caData) > 0 {
		return nil, self.Misconfigured("set one of them, or none for the roots of the system",
			"the environment variables %s and %s exclude each other", caFileVariable, caDataVariable)
	}
	if t.caFile == "" {
		if _, _, err := t.trust(t.caData); err != nil {
			return nil, self.Misconfigured("set it to certificates in PEM", "environment variable %s: %v", caDataVariable, err)
		}
	}
	t.key = []string{target.String(), t.serverName, t.caFile, fmt.Sprintf("%x", sha256.Sum256(t.caData))}
	t.client = &http.Client{Transport: t, Timeout: transport.RequestTimeout, CheckRedirect: transport.NoRedirect}
	return t, nil
}

// clientOr returns the client for requests of reroute, or the other one without
// a proxy.
func (p *tokenProxy) clientOr(other *http.Client) *http.Client {
	if p == nil {
		return other
	}
	return p.client
}

// reroute sends a request to the proxy, if there is one. The request's path is
// appended to the proxy's. Query and Host header stay, as in azidentity.
func (p *tokenProxy) reroute(r *http.Request) *http.Request {
	if p == nil || r == nil {
		return r
	}
	rerouted := *r
	rerouted.URL = p.target.JoinPath(r.URL.EscapedPath())
	rerouted.URL.RawQuery = r.URL.RawQuery
	return &rerouted
}

// RoundTrip implements http.RoundTripper with the CA of the moment.
func (p *tokenProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	client, err := p.current()
	if err != nil {
		return nil, err
	}
	return client.Transport.RoundTrip(r)
}

// current returns the client for the present CA. An error is temporary, because
// AKS may be replacing the file.
func (p *tokenProxy) current() (client *http.Client, err error) {
	var replaced *http.Client
	ca := p.caData
	if p.caFile != "" {
		ca, err = input.ReadFile(p.caFile)
	}
	if err == nil {
		client, replaced, err = p.trust(ca)
	}
	if err != nil { // without quotes, which transport.Message takes for an answer's
		return nil, fmt.Errorf("%s: file %s: %w", caFileVariable, p.caFile, err)
	}
	if replaced != nil {
		replaced.CloseIdleConnections()
	}
	return client, nil
}

// trust returns the client for a CA in PEM, and the client that it replaces.
// Without a CA it keeps the last client.
func (p *tokenProxy) trust(ca []byte) (client, replaced *http.Client, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trusting != nil && (len(ca) == 0 || bytes.Equal(ca, p.ca)) {
		return p.trusting, nil, nil
	}
	var roots *x509.CertPool
	if len(ca) > 0 {
		roots = x509.NewCertPool()
	}
	switch {
	case roots == nil && p.caFile != "":
		return nil, nil, errors.New("it is empty")
	case roots != nil && !roots.AppendCertsFromPEM(ca):
		return nil, nil, errors.New("it holds no PEM certificate")
	}
	replaced = p.trusting
	p.ca, p.trusting = ca, transport.Derive(p.base, func(t *http.Transport) {
		t.TLSClientConfig.RootCAs, t.TLSClientConfig.ServerName = roots, p.serverName
	})
	return p.trusting, replaced, nil
}

// checkBinding refuses options that the token proxy would ignore.
func (p *Provider) checkBinding(e *environment, opts *provider.Options) error {
	var what, option string
	switch {
	case p.learn().proxy == nil:
		return nil
	case opts.HTTPClient != nil:
		what, option = "an HTTP client", "auth.WithHTTPClient"
	case opts.ProxyURL != nil:
		what, option = "a proxy", "auth.WithProxyURL"
	case opts.TokenIssued:
		what, option = "an issuer of subject tokens", "auth.WithSubjectIssuer"
	case e != p.learn().standard:
		what, option = "the authority of another cloud", optionAuthority
	default:
		return nil
	}
	return self.Misconfigured("leave it out, or use a provider without identity bindings",
		"%s is refused: with identity bindings the token proxy of the cluster issues every token", what).About(option)
}
