package testworld

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/workloadid/workloadid/auth/authtest"
)

// Verifier returns the check of a service that trusts the issuer: signature by the published keys, issuer, audience, expiry. It
// returns the token's subject.
func Verifier(t testing.TB, issuer *authtest.Issuer) func(token, audience string) (subject string, err error) {
	t.Helper()
	published := httptest.NewRecorder()
	issuer.ServeHTTP(published, httptest.NewRequestWithContext(t.Context(), http.MethodGet, issuer.URL()+"/openid/v1/jwks", nil))
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(published.Body.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	return func(token, audience string) (string, error) {
		parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
		if err != nil {
			return "", err
		}
		var c jwt.Claims
		if err := parsed.Claims(keys, &c); err != nil {
			return "", err
		}
		return c.Subject, c.Validate(jwt.Expected{Issuer: issuer.URL(), AnyAudience: jwt.Audience{audience}, Time: time.Now()})
	}
}
