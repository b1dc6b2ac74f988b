package cache_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/workloadid/workloadid/cache"
)

// installationToken is an access token of an installation of a GitHub App.
type installationToken struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// GetDuration implements cache.Token.
func (t *installationToken) GetDuration() time.Duration { return time.Until(t.ExpiresAt) }

// githubApp is an installation of a GitHub App, and the key that the app signs with.
type githubApp struct {
	api                   string // https://api.github.com, or that of an Enterprise Server
	appID, installationID string
	key                   *rsa.PrivateKey
}

// request describes the token for the cache. The key of the app is part of the cache key: a tenant that only knows the IDs of an
// app gets no token of it.
func (a *githubApp) request(tenant string) cache.Request {
	public := x509.MarshalPKCS1PublicKey(&a.key.PublicKey)
	return cache.Request{
		Key:      sha256.Sum256(fmt.Appendf(nil, "github app %q %q %q %x", a.api, a.appID, a.installationID, public)),
		Tenant:   tenant,
		Provider: "github",
		Mint:     a.mint,
	}
}

// mint asks GitHub for a token. ctx has the deadline of the cache.
func (a *githubApp) mint(ctx context.Context) (cache.Token, error) {
	assertion, err := a.sign()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.api+"/app/installations/"+a.installationID+"/access_tokens", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+assertion)
	req.Header.Set("Accept", "application/vnd.github+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read only
	if resp.StatusCode != http.StatusCreated {
		return nil, fmt.Errorf("GitHub answers %s for installation %q of app %q", resp.Status, a.installationID, a.appID)
	}
	token := &installationToken{}
	return token, json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(token)
}

// sign returns the JWT with which the app authenticates. GitHub accepts ten minutes at most, and its clock may be behind.
func (a *githubApp) sign() (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: a.key}, nil)
	if err != nil {
		return "", err
	}
	now := time.Now()
	return jwt.Signed(signer).Claims(jwt.Claims{Issuer: a.appID, IssuedAt: jwt.NewNumericDate(now.Add(-time.Minute)),
		Expiry: jwt.NewNumericDate(now.Add(9 * time.Minute))}).Serialize()
}

// fakeGitHub issues tokens to installation 42 of app 1234, and counts them.
func fakeGitHub(public *rsa.PublicKey, issued *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var claims jwt.Claims
		signed, err := jwt.ParseSigned(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), []jose.SignatureAlgorithm{jose.RS256})
		if err != nil || signed.Claims(public, &claims) != nil || claims.ValidateWithLeeway(jwt.Expected{Issuer: "1234", Time: time.Now()}, 0) != nil ||
			r.Method != http.MethodPost || r.URL.Path != "/app/installations/42/access_tokens" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(installationToken{fmt.Sprintf("ghs_%d", issued.Add(1)), time.Now().Add(time.Hour)})
	}
}

// A controller keeps credentials that it mints itself in the cache that auth uses too, such as tokens of a GitHub App.
func ExampleTokenCache_GetOrSet_gitHubApp() {
	key, err := rsa.GenerateKey(rand.Reader, 2048) // that of the app, from a Secret
	if err != nil {
		fmt.Println(err)
		return
	}
	var issued atomic.Int32
	github := httptest.NewServer(fakeGitHub(&key.PublicKey, &issued))
	defer github.Close()
	tokens, err := cache.NewTokenCache(1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()

	app := &githubApp{api: github.URL, appID: "1234", installationID: "42", key: key}
	for range 2 {
		token, retrieved, err := tokens.GetOrSet(context.Background(), app.request("tenant-a"))
		if err != nil {
			fmt.Println(err)
			return
		}
		if t, ok := token.(*installationToken); ok {
			fmt.Printf("%s, from the cache: %t\n", t.Token, retrieved)
		}
	}
	fmt.Println(issued.Load(), "issued")
	// Output:
	// ghs_1, from the cache: false
	// ghs_1, from the cache: true
	// 1 issued
}
