package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/workloadid/workloadid/internal/transport"
)

// maxDocuments bounds how many discovery documents are kept for one authority. There is one for each tenant, and a
// controller has one.
const maxDocuments = 16

// recorder sends the requests of one use of the SDK, remembers what went wrong, and answers requests for discovery
// documents that are known.
type recorder struct {
	chain *chain

	mu      sync.Mutex
	refusal *transport.Answer
	failure error
}

// Do implements policy.Transporter. Bodies are bounded by the client.
func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	document := req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/.well-known/openid-configuration")
	if document {
		if kept, ok := r.chain.document(req.URL.String()); ok {
			return response(req, kept), nil
		}
	}
	resp, err := r.chain.client.Do(req) //nolint:gosec // the SDK builds it from an authority that was checked
	if err != nil {
		r.remember(nil, err)
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or dropped
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.remember(nil, err)
		return nil, err
	}
	answer := transport.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	switch {
	case answer.Status != http.StatusOK:
		r.remember(&answer, nil)
	case document && json.Valid(body):
		r.chain.keep(req.URL.String(), answer)
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

func (c *chain) document(url string) (transport.Answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.documents[url]
	return a, ok
}

func (c *chain) keep(url string, a transport.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.documents) < maxDocuments {
		c.documents[url] = a
	}
}

const (
	metadataEndpoint = "http://169.254.169.254/metadata/identity/oauth2/token"
	metadataPatience = time.Second
)

// noManagedIdentity finds out whether the machine has a metadata service: elsewhere the SDK would wait for it for long. The
// question lacks the header that makes it one, so every answer will do.
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
		return "the metadata service cannot be asked"
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return "there is no metadata service"
	}
	_ = resp.Body.Close() // there is nothing in it for us
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metadata = true
	return ""
}
