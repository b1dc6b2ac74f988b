package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/workloadid/workloadid/internal/exactjson"
)

// oidcProvider is a cloud's trust in an issuer.
type oidcProvider struct {
	issuer    string
	fetch     *http.Client
	clientIDs []string

	mu   sync.Mutex
	keys *jose.JSONWebKeySet
}

const (
	fetchTimeout = 5 * time.Second
	maxDocument  = 1 << 20
)

// errKeys means that the issuer's keys are unavailable, or that they lack the
// token's key.
var errKeys = errors.New("no verification key")

// errSignature means that the key that the token names did not sign it.
var errSignature = errors.New("wrong signature")

type tokenClaims = jwt.Claims

// readToken returns claims without verifying them. They name the issuer whose
// keys verify the token.
func readToken(token string) (*jwt.JSONWebToken, tokenClaims, error) {
	parsed, err := jwt.ParseSigned(token,
		[]jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.RS384, jose.RS512, jose.ES384})
	if err != nil {
		return nil, tokenClaims{}, err
	}
	var claims tokenClaims
	return parsed, claims, parsed.UnsafeClaimsWithoutVerification(&claims)
}

// verify checks the signature with the key that the issuer publishes. It
// fetches the keys if it does not know the key that the token names.
func (p *oidcProvider) verify(ctx context.Context, token *jwt.JSONWebToken) error {
	id := token.Headers[0].KeyID
	if id == "" {
		return errKeys
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys == nil || len(p.keys.Key(id)) == 0 {
		keys, err := p.fetchKeys(ctx)
		if err != nil {
			return err
		}
		p.keys = keys
	}
	found := p.keys.Key(id)
	if len(found) == 0 {
		return errKeys
	}
	var claims tokenClaims
	if err := token.Claims(found[0].Key, &claims); err != nil {
		return errSignature
	}
	return nil
}

func (p *oidcProvider) fetchKeys(ctx context.Context) (*jose.JSONWebKeySet, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var document discovery
	if err := p.get(ctx, p.issuer+"/.well-known/openid-configuration", &document); err != nil {
		return nil, err
	}
	if document.Issuer != p.issuer || document.JWKSURI == "" ||
		!slices.Contains(document.ResponseTypes, "id_token") || len(document.SubjectTypes) == 0 ||
		len(document.Algorithms) == 0 {
		return nil, errKeys
	}
	keys := &jose.JSONWebKeySet{}
	return keys, p.get(ctx, document.JWKSURI, keys)
}

func (p *oidcProvider) get(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := p.fetch.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errKeys, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or dropped
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s answers %d", errKeys, url, resp.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err == nil {
		err = exactjson.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errKeys, url, err)
	}
	return nil
}
