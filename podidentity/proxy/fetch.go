package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/transport"
)

const (
	maxAnswer = 64 << 10
	maxText   = 300
)

// newClient returns the caller's client, or a new one with its CAs.
func newClient(o Options) (*http.Client, *roots, error) {
	if (o.Client == nil) == (len(o.CA) == 0) {
		return nil, nil, errors.New("proxy: pass either the CA of the server as PEM or a client")
	}
	if o.Client != nil {
		return transport.Guard(o.Client), nil, nil
	}
	trusted, err := newRoots(o.CA)
	if err != nil {
		return nil, nil, err
	}
	return transport.Guard(&http.Client{Transport: trusted}), trusted, nil
}

// fetch asks the server once.
func (p *Proxy) fetch(ctx context.Context) (*credentials, *failure) {
	req, err := p.request(ctx)
	if err != nil {
		return nil, unavailable("%v", err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, unavailable("%s", transport.Message(err))
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or dropped
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxAnswer))
	if err != nil {
		return nil, unavailable("read the answer of the server: %s", transport.Message(err))
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp.StatusCode, resp.Header, body)
	}
	fresh, err := parseCredentials(body, time.Now())
	if err != nil {
		return nil, unavailable("the server's answer cannot be used: %v", err)
	}
	p.follow(body, resp.TLS)
	return fresh, nil
}

func (p *Proxy) request(ctx context.Context) (*http.Request, error) {
	token, err := os.ReadFile(p.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the pod's token: %w", err)
	}
	bearer := strings.TrimSpace(string(token))
	if !validHeader(bearer) {
		return nil, fmt.Errorf("the file %q holds no token", p.tokenFile)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	return req, nil
}

// refusal reads an answer other than 200. A 403 counts as the server's decision
// only in the form of the protocol. A 403 from a hop between proxy and server
// must not drop credentials.
func refusal(status int, header http.Header, body []byte) *failure {
	var said struct{ Code, Message string }
	f := unavailable("the server answers with HTTP %d", status)
	if json.Unmarshal(body, &said) == nil && said.Code != "" {
		f.Code, f.Message = cut(said.Code), cut(said.Message)
		if status == http.StatusForbidden {
			f.status = status
		}
	}
	f.retryAfter = transport.RetryAfter(header, time.Now())
	return f
}

func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// failure describes a failed attempt, and is the answer to applications.
type failure struct {
	status        int
	Code, Message string
	retryAfter    time.Duration
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

func unavailable(format string, args ...any) *failure {
	return &failure{status: http.StatusServiceUnavailable, Code: "Unavailable", Message: cut(fmt.Sprintf(format, args...))}
}
