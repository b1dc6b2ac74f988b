package cloudtest

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
)

const (
	grantTokenExchange     = "urn:ietf:params:oauth:grant-type:token-exchange"
	grantJWTBearer         = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	grantClientCredentials = "client_credentials"

	tokenTypePrefix      = "urn:ietf:params:oauth:token-type:"
	tokenTypeAccessToken = tokenTypePrefix + "access_token"
	tokenTypeIDToken     = tokenTypePrefix + "id_token"
	tokenTypeJWT         = tokenTypePrefix + "jwt"
)

// exchange implements RFC 8693, section 2.
func (s *oauthCall) exchange() (any, *oauthError) {
	grant := s.form.Get("grant_type")
	if grant == grantClientCredentials && s.form.Get("client_assertion") != "" {
		return s.federatedClient()
	}
	client, err := s.authenticate()
	if err != nil {
		return nil, err
	}
	if grant != grantTokenExchange && grant != grantJWTBearer {
		return nil, refuseOAuth("unsupported_grant_type", "the grant type %q is not supported", grant)
	}
	id := OAuthIdentity{ClientID: client, Audience: s.form.Get("audience"), Resource: s.form.Get("resource"),
		Scopes: strings.Fields(s.form.Get("scope")), TokenType: s.form.Get("requested_token_type")}
	if id.TokenType == "" {
		id.TokenType = tokenTypeAccessToken
	}
	if !slices.Contains([]string{tokenTypeAccessToken, tokenTypeIDToken, tokenTypeJWT}, id.TokenType) {
		return nil, refuseOAuth("invalid_request", "requested_token_type %q is not supported", id.TokenType)
	}
	subject, err := s.subject(grant)
	if err != nil {
		return nil, err
	}
	id.Issuer, id.Subject = subject.Issuer, subject.Subject
	if id.Actor, err = s.actor(); err != nil {
		return nil, err
	}
	if err := s.checkGrants(id); err != nil {
		if grant == grantJWTBearer && err.code == "invalid_request" {
			err.code = "invalid_grant"
		}
		return nil, err
	}
	return s.answer(id), nil
}

func (s *oauthCall) subject(grant string) (tokenClaims, *oauthError) {
	if grant == grantJWTBearer { // RFC 7523, sections 2.1 and 3.1
		claims, err := s.verified("assertion")
		if err != nil {
			err.code = "invalid_grant"
		}
		return claims, err
	}
	return s.token("subject_token", "subject_token_type")
}

// federatedClient implements RFC 7523, section 2.2. Like Keycloak, the server
// finds the client by issuer and subject.
func (s *oauthCall) federatedClient() (any, *oauthError) {
	if s.form.Get("client_assertion_type") != jwtBearerAssertion {
		return nil, refuseOAuth("invalid_request", "client_assertion_type is not the one for JWTs")
	}
	for name := range s.form {
		if !slices.Contains([]string{"grant_type", "client_assertion_type", "client_assertion", "client_id", "audience",
			"resource", "scope"}, name) {
			return nil, refuseOAuth("invalid_request", "the parameter %s is unknown", name)
		}
	}
	claims, err := s.verified("client_assertion")
	if err != nil {
		return nil, invalidClient(err.description)
	}
	if claims.IssuedAt == nil || claims.Expiry.Time().Sub(claims.IssuedAt.Time()) > time.Hour {
		return nil, invalidClient("client_assertion is valid for more than 3,600 seconds")
	}
	id := OAuthIdentity{Issuer: claims.Issuer, Subject: claims.Subject, TokenType: tokenTypeAccessToken,
		Audience: s.form.Get("audience"), Resource: s.form.Get("resource"), Scopes: strings.Fields(s.form.Get("scope"))}
	if err := s.checkGrants(id); err != nil {
		if err.code == "invalid_request" {
			err = invalidClient(err.description)
		}
		return nil, err
	}
	return s.answer(id), nil
}

// actor returns the subject of the actor token. The token and its type require
// each other.
func (s *oauthCall) actor() (string, *oauthError) {
	if s.form.Get("actor_token") == "" {
		if s.form.Get("actor_token_type") != "" {
			return "", refuseOAuth("invalid_request", "actor_token_type is there without actor_token")
		}
		return "", nil
	}
	claims, err := s.token("actor_token", "actor_token_type")
	return claims.Subject, err
}

// token verifies the token in a parameter. Every fault is an invalid_request
// (RFC 8693, section 2.2.2).
func (s *oauthCall) token(name, typeName string) (tokenClaims, *oauthError) {
	kind := s.form.Get(typeName)
	if s.form.Get(name) == "" || kind == "" {
		return tokenClaims{}, refuseOAuth("invalid_request", "%s or %s is missing", name, typeName)
	}
	if !slices.Contains([]string{tokenTypeAccessToken, tokenTypeIDToken, tokenTypeJWT}, kind) {
		return tokenClaims{}, refuseOAuth("invalid_request", "%s %q is not supported", typeName, kind)
	}
	return s.verified(name)
}

func (s *oauthCall) verified(name string) (tokenClaims, *oauthError) {
	parsed, claims, err := readToken(s.form.Get(name))
	if err != nil {
		return claims, refuseOAuth("invalid_request", "%s is not a JWT", name)
	}
	provider := s.oauth.issuer(claims.Issuer)
	if provider == nil {
		return claims, refuseOAuth("invalid_request", "the issuer %s of %s is not trusted", claims.Issuer, name)
	}
	now := s.oauth.cloud.time()
	switch {
	case provider.verify(s.r.Context(), parsed) != nil:
		return claims, refuseOAuth("invalid_request", "the signature of %s cannot be verified", name)
	case claims.Expiry == nil || !now.Before(claims.Expiry.Time()):
		return claims, refuseOAuth("invalid_request", "%s has expired", name)
	case claims.NotBefore != nil && now.Add(time.Minute).Before(claims.NotBefore.Time()):
		return claims, refuseOAuth("invalid_request", "%s is not valid yet", name)
	case !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(provider.clientIDs, a) }):
		return claims, refuseOAuth("invalid_request", "%s is not for this server", name)
	}
	return claims, nil
}

// checkGrants looks for one grant that allows the whole request. The refusal
// names the first check that the best grant fails.
func (s *oauthCall) checkGrants(id OAuthIdentity) *oauthError {
	if r := id.Resource; r != "" {
		if u, err := url.Parse(r); err != nil || !u.IsAbs() || u.Fragment != "" {
			return refuseOAuth("invalid_target", "the resource is not an absolute URI without a fragment")
		}
	}
	s.oauth.mu.Lock()
	defer s.oauth.mu.Unlock()
	refusals := []*oauthError{
		refuseOAuth("invalid_request", "the subject %s may not be exchanged", id.Subject),
		refuseOAuth("unauthorized_client", "the client may not exchange tokens of this subject"),
		refuseOAuth("invalid_target", "the audience or the resource is not allowed"),
		refuseOAuth("invalid_scope", "a scope is unknown or not allowed"),
	}
	best := 0
	for _, g := range s.oauth.grants {
		best = max(best, g.reach(id))
	}
	if best == len(refusals) {
		return nil
	}
	return refusals[best]
}

// reach returns the number of the grant's checks that a request passes.
func (g OAuthGrant) reach(id OAuthIdentity) int {
	switch {
	case g.Issuer != id.Issuer || !slices.Contains(g.Subjects, id.Subject):
		return 0
	case len(g.Clients) > 0 && !slices.Contains(g.Clients, id.ClientID):
		return 1
	case id.Audience != "" && !slices.Contains(g.Audiences, id.Audience),
		id.Resource != "" && !slices.Contains(g.Resources, id.Resource):
		return 2
	case slices.ContainsFunc(id.Scopes, func(scope string) bool { return !slices.Contains(g.Scopes, scope) }):
		return 3
	}
	return 4
}

// answer implements RFC 8693, section 2.2.1.
func (s *oauthCall) answer(id OAuthIdentity) map[string]any {
	c := s.oauth.settings()
	now := s.oauth.cloud.time()
	id.Expiration = now.Add(c.Lifetime)
	answer := map[string]any{
		"access_token":      s.oauth.issue(id, now, c.OpaqueTokens),
		"issued_token_type": id.TokenType,
		"token_type":        "Bearer",
		"expires_in":        int64(c.Lifetime / time.Second),
	}
	if id.TokenType != tokenTypeAccessToken {
		answer["token_type"] = "N_A"
	}
	if len(id.Scopes) > 0 {
		answer["scope"] = strings.Join(id.Scopes, " ")
	}
	return answer
}

// issue returns a token and records it.
func (o *OAuth) issue(id OAuthIdentity, now time.Time, opaque bool) string {
	token := base64.RawURLEncoding.EncodeToString(random(32))
	if !opaque || id.TokenType != tokenTypeAccessToken {
		token = o.sign(id, now)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.issued[token] = id
	return token
}

// sign makes a JWT with the claims of RFC 9068.
func (o *OAuth) sign(id OAuthIdentity, now time.Time) string {
	claims := map[string]any{"iss": o.URL(), "sub": id.Subject, "jti": uuid.NewString(),
		"iat": now.Unix(), "exp": id.Expiration.Unix()}
	optional := map[string]string{"aud": id.Audience, "client_id": id.ClientID, "scope": strings.Join(id.Scopes, " ")}
	for name, value := range optional {
		if value != "" {
			claims[name] = value
		}
	}
	if id.Audience == "" && id.Resource != "" {
		claims["aud"] = id.Resource
	}
	if id.Actor != "" {
		claims["act"] = map[string]any{"sub": id.Actor}
	}
	typ := jose.ContentType("JWT")
	if id.TokenType == tokenTypeAccessToken {
		typ = "at+jwt"
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256,
		Key: jose.JSONWebKey{Key: o.signingKey(), KeyID: oauthKeyID}}, (&jose.SignerOptions{}).WithType(typ))
	if err != nil {
		panic(err) // key and algorithm fit
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		panic(err) // the claims are plain values
	}
	return token
}
