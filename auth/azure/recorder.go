package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/transport"
)

// maxDocuments bounds the discovery documents in memory for one authority. There is one for each tenant.
const maxDocuments = 16

// recorder sends the requests of the SDK for one call. It remembers the last failure, and answers requests for discovery documents that
// the chain keeps.
type recorder struct {
	chain *chain

	mu      sync.Mutex
	refusal *transport.Answer
	failure error
	used    []string // URLs of kept discovery documents
}

// Do implements policy.Transporter. The client bounds the bodies.
func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	document := req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/.well-known/openid-configuration")
	if document {
		if kept, ok := r.chain.document(req.URL.String()); ok {
			r.use(req.URL.String())
			return response(req, kept), nil
		}
	}
	resp, err := r.chain.client.Do(req) //nolint:gosec // the SDK builds it from an authority that was checked
	if err != nil {
		r.remember(nil, err)
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.remember(nil, err)
		return nil, err
	}
	answer := transport.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	switch {
	case answer.Status != http.StatusOK:
		r.remember(&answer, nil)
	case document && r.chain.isOwn(body):
		r.chain.keep(req.URL.String(), answer)
		r.use(req.URL.String())
		fallthrough
	default:
		r.remember(nil, nil)
	}
	return response(req, answer), nil
}

func response(req *http.Request, a transport.Answer) *http.Response {
	return &http.Response{Status: http.StatusText(a.Status), StatusCode: a.Status, Header: a.Header.Clone(), Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(a.Body)), ContentLength: int64(len(a.Body))}
}

func (r *recorder) remember(refusal *transport.Answer, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusal, r.failure = refusal, failure
}

func (r *recorder) last() (*transport.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusal, r.failure
}

func (r *recorder) use(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = append(r.used, address)
}

// forget drops the discovery documents of a failed request for a token: they may be the cause.
func (r *recorder) forget() {
	r.mu.Lock()
	used := r.used
	r.used = nil
	r.mu.Unlock()
	r.chain.mu.Lock()
	defer r.chain.mu.Unlock()
	for _, address := range used {
		delete(r.chain.documents, address)
	}
}

// keptDocument is a discovery document.
type keptDocument struct {
	answer transport.Answer
	until  time.Time
}

// documentLife is the lifetime of a discovery document in memory.
const documentLife = time.Hour

func (c *chain) document(address string) (transport.Answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.documents[address]
	return kept.answer, ok && time.Now().Before(kept.until)
}

func (c *chain) keep(address string, a transport.Answer) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.documents, func(_ string, kept keptDocument) bool { return !now.Before(kept.until) })
	if len(c.documents) < maxDocuments {
		c.documents[address] = keptDocument{a, now.Add(documentLife)}
	}
}

// isOwn reports whether a discovery document is one of the chain's cloud. The chain keeps no other document, because it would make every
// later request fail or send the secret elsewhere.
func (c *chain) isOwn(document []byte) bool {
	var d struct {
		Issuer        string `json:"issuer"`
		TokenEndpoint string `json:"token_endpoint"`
	}
	return json.Unmarshal(document, &d) == nil && c.isAuthority(d.Issuer) && c.isAuthority(d.TokenEndpoint)
}

func (c *chain) isAuthority(text string) bool {
	u, err := address.Parse("", text, address.Path|address.Query)
	if err != nil {
		return false
	}
	host, _ := address.Canonical(u)
	return slices.Contains(c.authorities, strings.TrimSuffix(host, ":443"))
}

const (
	metadataEndpoint = "http://169.254.169.254/metadata/identity/oauth2/token"
	metadataPatience = time.Second
)

// noManagedIdentity finds out whether the machine has a metadata service: elsewhere the SDK would wait long for it. The request lacks
// the required header, so any answer counts.
func (c *chain) noManagedIdentity(ctx context.Context) string {
	for _, name := range []string{"IDENTITY_ENDPOINT", "MSI_ENDPOINT", "IMDS_ENDPOINT"} {
		if os.Getenv(name) != "" {
			return ""
		}
	}
	c.mu.Lock()
	known := c.metadata
	c.mu.Unlock()
	if known {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, metadataPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metadataEndpoint, nil)
	if err != nil {
		return "there is no metadata service"
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return "there is no metadata service"
	}
	_ = resp.Body.Close() // nothing was written
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metadata = true
	return ""
}
