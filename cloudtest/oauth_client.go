package cloudtest

import (
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const jwtBearerAssertion = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

func invalidClient(description string) *oauthError {
	return &oauthError{http.StatusUnauthorized, "invalid_client", description}
}

// authenticate returns the ID of the client. It returns "" for an anonymous
// request, if the server allows one.
func (s *oauthCall) authenticate() (string, *oauthError) {
	s.basic = s.r.Header.Get("Authorization") != ""
	assertion := s.form.Get("client_assertion")
	methods := 0
	for _, used := range []bool{s.basic, s.form.Get("client_secret") != "", assertion != ""} {
		if used {
			methods++
		}
	}
	switch {
	case methods > 1:
		return "", refuseOAuth("invalid_request", "the client authenticates in more than one way")
	case s.basic:
		return s.authenticateBasic()
	case assertion != "":
		return s.authenticateAssertion(assertion)
	case s.form.Get("client_secret") != "":
		return "", invalidClient("client_secret_post is not supported")
	}
	return s.authenticateNone()
}

func (s *oauthCall) authenticateNone() (string, *oauthError) {
	id := s.form.Get("client_id")
	if id == "" {
		if s.oauth.settings().RequireClient {
			return "", invalidClient("client authentication is missing")
		}
		return "", nil
	}
	if c, ok := s.oauth.client(id); !ok || c.Method != "none" {
		return "", invalidClient("client authentication failed")
	}
	return id, nil
}

// authenticateBasic decodes both parts, which are form-encoded (RFC 6749,
// section 2.3.1).
func (s *oauthCall) authenticateBasic() (string, *oauthError) {
	encoded, ok := strings.CutPrefix(s.r.Header.Get("Authorization"), "Basic ")
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	user, password, found := strings.Cut(string(decoded), ":")
	if !ok || err != nil || !found {
		return "", invalidClient("the Authorization header is malformed")
	}
	id, err := url.QueryUnescape(user)
	if err != nil {
		return "", invalidClient("the client ID is not form-encoded")
	}
	secret, err := url.QueryUnescape(password)
	if err != nil {
		return "", invalidClient("the secret is not form-encoded")
	}
	c, ok := s.oauth.client(id)
	if !ok || c.Method != "client_secret_basic" || c.Secret == "" ||
		subtle.ConstantTimeCompare([]byte(secret), []byte(c.Secret)) != 1 {
		return "", invalidClient("client authentication failed")
	}
	return id, nil
}

// authenticateAssertion accepts the token of a ServiceAccount of a trusted
// cluster (RFC 7523, section 3).
func (s *oauthCall) authenticateAssertion(assertion string) (string, *oauthError) {
	if s.form.Get("client_assertion_type") != jwtBearerAssertion {
		return "", refuseOAuth("invalid_request", "client_assertion_type is not the one for JWTs")
	}
	parsed, err := jwt.ParseSigned(assertion, []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA})
	if err != nil {
		return "", invalidClient("the client assertion is not a JWT")
	}
	var claims tokenClaims
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return "", invalidClient("the client assertion has no claims")
	}
	provider := s.oauth.issuer(claims.Issuer)
	c, ok := s.oauth.clientOf(claims.Issuer, claims.Subject)
	now := s.oauth.cloud.time()
	const leeway = time.Minute
	switch {
	case provider == nil || !ok || provider.verify(s.r.Context(), parsed) != nil:
		return "", invalidClient("client authentication failed")
	case s.form.Get("client_id") != "" && s.form.Get("client_id") != c.ID:
		return "", invalidClient("client_id is not that of the client assertion")
	case !slices.ContainsFunc(claims.Audience, func(a string) bool {
		return a == s.oauth.URL() || a == s.oauth.TokenEndpoint() || slices.Contains(provider.clientIDs, a)
	}):
		return "", invalidClient("the client assertion is not for this server")
	case claims.Expiry == nil || !now.Before(claims.Expiry.Time()):
		return "", invalidClient("the client assertion has expired")
	case claims.IssuedAt != nil && claims.IssuedAt.Time().After(now.Add(leeway)):
		return "", invalidClient("the client assertion is of the future")
	}
	return c.ID, nil
}

func (o *OAuth) clientOf(issuer, subject string) (OAuthClient, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.clients {
		if c.Method == "client_assertion" && c.Issuer == issuer && c.Subject == subject {
			return c, true
		}
	}
	return OAuthClient{}, false
}
