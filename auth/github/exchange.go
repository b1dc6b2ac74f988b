package github

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/transport"
)

const opExchange = "create installation token"

const (
	// The JWT is valid from a minute ago, as GitHub advises, and for the ten
	// minutes that GitHub allows.
	jwtBackdated = time.Minute
	jwtLifetime  = 10 * time.Minute
	// apiVersion is the oldest version of the API, to support most servers.
	apiVersion = "2022-11-28"
)

// SignFunc returns the signature of a SHA-256 digest by the App's private key:
// RS256, RSASSA-PKCS1-v1_5 (RFC 7518, section 3.3). The ServiceAccount of the
// call has only namespace, name and UID. It is nil for the controller itself. A
// SignFunc honours the context and is safe for concurrent use. auth returns its
// [auth.Error] unchanged; any other error counts as [auth.ErrUnavailable].
type SignFunc func(ctx context.Context, sa *corev1.ServiceAccount, digest []byte) (signature []byte, err error)

// SignWith returns a [SignFunc] that signs for all ServiceAccounts with one RSA
// key.
func SignWith(key crypto.Signer) SignFunc {
	return func(_ context.Context, _ *corev1.ServiceAccount, digest []byte) ([]byte, error) {
		return key.Sign(rand.Reader, digest, crypto.SHA256)
	}
}

// NewTokenForServiceAccount creates an installation token. It does not send the
// ServiceAccount's token.
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, _ string, serviceAccount *corev1.ServiceAccount,
	opts *provider.Options) (auth.Token, error) {
	return p.exchange(ctx, subjectOf(serviceAccount), opts)
}

// NewControllerToken creates an installation token for OwnGrant.
func (p *Provider) NewControllerToken(ctx context.Context, opts *provider.Options) (auth.Token, error) {
	return p.exchange(ctx, nil, opts)
}

func (p *Provider) exchange(ctx context.Context, subject *corev1.ServiceAccount, opts *provider.Options,
) (auth.Token, error) {
	if err := p.ValidateOptions(opts); err != nil {
		return nil, err
	}
	g, err := p.granted(subject, opts)
	switch {
	case err != nil:
		return nil, err
	case opts.Identity != "" && opts.Identity != g.identity(): // the Policy saw another grant
		return nil, self.Unavailable(opExchange, "", "the grant has changed during the call")
	}
	r := &request{provider: p, grant: g, sentAt: time.Now()}
	if r.jwt, err = p.sign(ctx, subject, g.AppID, r.sentAt); err != nil {
		return nil, err
	}
	answer, err := transport.Send(ctx, p.clients.For(opts), func() (*http.Request, error) { return r.make(ctx) }, nil)
	if err != nil {
		return nil, self.Unanswered(opExchange, err, r.jwt)
	}
	return r.read(answer)
}

// sign returns the JWT of the App.
func (p *Provider) sign(ctx context.Context, subject *corev1.ServiceAccount, app string, now time.Time,
) (string, error) {
	claims, err := json.Marshal(map[string]any{"iss": app, "iat": now.Add(-jwtBackdated).Unix(),
		"exp": now.Add(jwtLifetime - jwtBackdated).Unix()})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	input := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(input))
	signature, err := p.Sign(ctx, subject, digest[:])
	if err != nil {
		return "", failed(err, auth.ErrUnavailable, "the App's JWT cannot be signed")
	}
	return input + "." + encode(signature), nil
}

// request is one exchange.
type request struct {
	provider *Provider
	grant    Grant
	jwt      string
	sentAt   time.Time
}

func (r *request) make(ctx context.Context) (*http.Request, error) {
	body, err := json.Marshal(struct {
		Repositories []string          `json:"repositories,omitempty"` // empty: all
		Permissions  map[string]string `json:"permissions"`
	}{r.grant.Repositories, r.grant.Permissions})
	if err != nil {
		return nil, err
	}
	path := "/app/installations/" + strconv.FormatInt(r.grant.Installation, 10) + "/access_tokens"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.provider.learn().api[0]+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("Authorization", "Bearer "+r.jwt)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "workloadid") // GitHub refuses requests without one
	req.Header.Set("X-GitHub-Api-Version", apiVersion)
	return req, nil
}
