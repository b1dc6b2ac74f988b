package provider

import (
	"net/http"

	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// HTTPClients makes the HTTP clients of a Provider. Keep one HTTPClients in the Provider's value: it shares connections between
// calls, one set for each proxy. The zero value is ready for use. It is safe for concurrent use.
type HTTPClients struct{ pool transport.Pool }

// For returns the client for a call: that of Options.HTTPClient, else one that uses Options.ProxyURL, else one that uses the
// proxies of the environment.
//
// The client is safe to send a credential with. It refuses redirects, because another host must not get the credential. It reads
// at most 1 MiB of an answer and fails with *http.MaxBytesError beyond that. A request takes at most 20 seconds with its answer,
// unless the client of Options.HTTPClient has a time-out of its own. Options.ProxyURL carries https only, and never a request to the
// metadata service of the machine. Send credentials to https addresses only: the environment's HTTP_PROXY sees plain http.
func (c *HTTPClients) For(opts *Options) *http.Client {
	return c.pool.For(opts.HTTPClient, opts.ProxyURL)
}

// Redact makes a text that a service sent fit for Error.Message, Error.Code or Error.RequestID. It returns one printable line of at
// most 300 bytes.
//
// The line holds none of the secrets, whether raw, URL-escaped or in base64, no JWT, and no value after "Bearer" or "Basic". Pass
// every secret that the request carried: services quote requests. Secrets of fewer than 8 bytes stay, and no other encoding is undone.
func Redact(text string, secrets ...string) string { return redact.Text(text, secrets...) }
