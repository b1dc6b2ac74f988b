package interop

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	clientID = "web:controller" // needs form-encoding in the Authorization header
	secret   = "p:ä%+ &=secret"
	subject  = "system:serviceaccount:tenant-a:app"
)

// trusting is the server's example storage, which in addition trusts the tokens
// of a cluster for token exchange.
type trusting struct {
	*storage.Storage
	issuer   *cloudtest.Issuer
	audience string
}

// VerifyExchangeSubjectToken is what the server asks about tokens that are not
// its own.
func (s *trusting) VerifyExchangeSubjectToken(ctx context.Context, token string,
	kind oidc.TokenType) (string, string, map[string]any, error) {
	if kind != oidc.JWTTokenType {
		return "", "", nil, errors.New("not a JWT")
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return "", "", nil, err
	}
	keys, err := s.keys(ctx)
	if err != nil {
		return "", "", nil, err
	}
	var claims jwt.Claims
	if err := parsed.Claims(keys, &claims); err != nil {
		return "", "", nil, err
	}
	expected := jwt.Expected{Issuer: s.issuer.URL(), AnyAudience: jwt.Audience{s.audience}, Time: time.Now()}
	return token, claims.Subject, map[string]any{"iss": claims.Issuer}, claims.Validate(expected)
}

func (s *trusting) keys(ctx context.Context) (*jose.JSONWebKeySet, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.issuer.URL()+"/openid/v1/jwks", nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.issuer.HTTPClient().Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	keys := &jose.JSONWebKeySet{}
	return keys, json.NewDecoder(resp.Body).Decode(keys)
}

// GetKeyByIDAndClientID is what the server asks about assertions. The client is
// the issuer of the token.
func (s *trusting) GetKeyByIDAndClientID(ctx context.Context, keyID, clientID string) (*jose.JSONWebKey, error) {
	keys, err := s.keys(ctx)
	if err != nil {
		return nil, err
	}
	for _, key := range keys.Key(keyID) {
		if clientID == s.issuer.URL() {
			return &key, nil
		}
	}
	return nil, oidc.ErrInvalidGrant().WithDescription("the key of the assertion is unknown")
}

// federated is the server for assertions of ServiceAccounts, whose issuer is
// not their subject.
type federated struct{ *op.Provider }

func (f *federated) JWTProfileVerifier(ctx context.Context) *op.JWTProfileVerifier {
	return op.NewJWTProfileVerifier(f.Storage(), op.IssuerFromContext(ctx), time.Hour, time.Second,
		op.SubjectCheck(func(request *oidc.JWTTokenRequest) error {
			if request.Subject != subject {
				return oidc.ErrInvalidGrant().WithDescription("subject %s is not allowed", request.Subject)
			}
			return nil
		}))
}

// ServeHTTP takes assertions, for which the server's own handler requires that
// a client is its own issuer.
func (f *federated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("grant_type") == string(oidc.GrantTypeBearer) {
		op.JWTProfile(w, r, f)
		return
	}
	f.Provider.ServeHTTP(w, r)
}

func (s *trusting) VerifyExchangeActorToken(ctx context.Context, token string,
	kind oidc.TokenType) (string, string, map[string]any, error) {
	return s.VerifyExchangeSubjectToken(ctx, token, kind)
}

// ValidateTokenExchangeRequest is the server's policy: one ServiceAccount, some
// scopes.
func (s *trusting) ValidateTokenExchangeRequest(_ context.Context, request op.TokenExchangeRequest) error {
	if request.GetExchangeSubject() != subject {
		return oidc.ErrInvalidGrant().WithDescription("subject %s is not allowed", request.GetExchangeSubject())
	}
	if request.GetRequestedTokenType() == "" {
		request.SetRequestedTokenType(oidc.AccessTokenType)
	}
	var granted []string
	for _, scope := range request.GetScopes() {
		if scope != "admin" {
			granted = append(granted, scope)
		}
	}
	request.SetCurrentScopes(granted)
	return nil
}

// SetUserinfoFromTokenExchangeRequest knows no users: subjects are
// ServiceAccounts.
func (s *trusting) SetUserinfoFromTokenExchangeRequest(_ context.Context, info *oidc.UserInfo,
	request op.TokenExchangeRequest) error {
	info.Subject = request.GetSubject()
	return nil
}

func (s *trusting) GetPrivateClaimsFromTokenExchangeRequest(context.Context,
	op.TokenExchangeRequest) (map[string]any, error) {
	return nil, nil
}

type environment struct {
	server  *httptest.Server
	issuer  *cloudtest.Issuer
	client  *cloudtest.Client
	storage *trusting
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	issuer := testenv.Issuer(t)
	var handler http.Handler
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	storage.RegisterClients(storage.WebClient(clientID, secret))
	store := &trusting{storage.NewStorage(storage.NewUserStore(server.URL)), issuer, server.URL}
	provider, err := op.NewOpenIDProvider(server.URL, &op.Config{
		CryptoKey:             sha256.Sum256([]byte("test")),
		AuthMethodPost:        true,
		GrantTypeRefreshToken: true,
		SupportedUILocales:    []language.Tag{language.English},
	}, store, op.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	handler = op.NewIssuerInterceptor(provider.IssuerFromRequest).Handler(&federated{provider})
	account := func(namespace string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}}
	}
	return &environment{server, issuer, issuer.Client(account("tenant-a"), account("tenant-b")), store}
}

func (w *environment) get(t *testing.T, p *exchange.Provider, namespace string,
	opts ...auth.Option) (*exchange.Token, error) {
	t.Helper()
	token, err := auth.GetAccessToken(t.Context(), p, append(opts,
		auth.WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: "app"}, w.client),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: namespace, Name: "b"}),
		auth.WithHTTPClient(w.server.Client()))...)
	if err != nil {
		return nil, err
	}
	return exchange.FromToken(token)
}

func secretOf(s string) exchange.SecretFunc {
	return func(context.Context) (string, error) { return s, nil }
}

// The server issues an access token, and an ID token that names the
// ServiceAccount. (Its example storage cannot look up access tokens whose
// subject holds a colon, so userinfo is not asked.)
func TestZitadel(t *testing.T) {
	w := newEnvironment(t)
	p := &exchange.Provider{IssuerURL: w.server.URL, Client: exchange.ClientSecretBasic(clientID, secretOf(secret))}
	token, err := w.get(t, p, "tenant-a", auth.WithScopes("openid", "profile"))
	if err != nil {
		t.Fatal(err)
	}
	if token.Type() != "Bearer" || token.IssuedTokenType() != exchange.TokenTypeAccessToken ||
		strings.Join(token.Scopes(), " ") != "openid profile" || token.GetDuration() <= 0 {
		t.Errorf("got %v of type %q for %q", token, token.IssuedTokenType(), token.Scopes())
	}
	idTokens := &exchange.Provider{IssuerURL: w.server.URL, RequestedTokenType: exchange.TokenTypeIDToken,
		Client: exchange.ClientSecretBasic(clientID, secretOf(secret))}
	id, err := w.get(t, idTokens, "tenant-a", auth.WithScopes("openid"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(id.Reveal(), []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	var claims jwt.Claims
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil || claims.Subject != subject ||
		claims.Issuer != w.server.URL || id.Type() != "N_A" || id.GetDuration() <= 0 {
		t.Errorf("got %v with the claims %+v, %v", id, claims, err)
	}
}

// The server takes the token as assertion (RFC 7523, section 2.1). It calls a
// wrong audience a failure of its own (server_error), which the library has to
// believe.
func TestZitadelAssertions(t *testing.T) {
	w := newEnvironment(t)
	p := &exchange.Provider{IssuerURL: w.server.URL, Grant: exchange.GrantJWTBearer}
	token, err := w.get(t, p, "tenant-a", auth.WithScopes("openid"))
	if err != nil {
		t.Fatal(err)
	}
	if token.Type() != "Bearer" || strings.Join(token.Scopes(), " ") != "openid" || token.GetDuration() <= 0 {
		t.Errorf("got %v for %q, want openid", token, token.Scopes())
	}
	for name, tc := range map[string]struct {
		provider  *exchange.Provider
		namespace string
		reason    provider.Reason
		want      string
	}{
		"another tenant": {p, "tenant-b", auth.ErrDenied, "subject system:serviceaccount:tenant-b:app is not allowed"},
		"another audience": {&exchange.Provider{IssuerURL: w.server.URL, Grant: exchange.GrantJWTBearer,
			KubernetesAudience: "vault"},
			"tenant-a", auth.ErrUnavailable, "audience is not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.get(t, tc.provider, tc.namespace)
			testenv.CheckError(t, err, tc.reason, tc.want)
		})
	}
}

// What the server refuses has the right reason.
func TestZitadelRefuses(t *testing.T) {
	w := newEnvironment(t)
	basic := exchange.ClientSecretBasic(clientID, secretOf(secret))
	for name, tc := range map[string]struct {
		provider  *exchange.Provider
		namespace string
		scopes    []string
		reason    provider.Reason
		want      string
	}{
		"another tenant": {&exchange.Provider{IssuerURL: w.server.URL, Client: basic}, "tenant-b", nil, auth.ErrDenied,
			"invalid_grant"},
		"another secret": {&exchange.Provider{IssuerURL: w.server.URL,
			Client: exchange.ClientSecretBasic(clientID, secretOf("wrong-secret"))},
			"tenant-a", nil, auth.ErrMisconfigured, "invalid_client"},
		"another audience": {&exchange.Provider{IssuerURL: w.server.URL, Client: basic, KubernetesAudience: "vault"},
			"tenant-a", nil, auth.ErrDenied, "invalid_request"},
		"less scope": {&exchange.Provider{IssuerURL: w.server.URL, Client: basic}, "tenant-a",
			[]string{"openid", "admin"}, auth.ErrDenied, `did not grant the scope "admin"`},
		"a type that it cannot issue": {&exchange.Provider{IssuerURL: w.server.URL, Client: basic,
			RequestedTokenType: "urn:example:other"},
			"tenant-a", nil, auth.ErrDenied, "requested_token_type is not supported"},
		"another issuer": {&exchange.Provider{IssuerURL: w.server.URL + "/", Client: basic}, "tenant-a", nil,
			auth.ErrMisconfigured, "exactly"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.get(t, tc.provider, tc.namespace, auth.WithScopes(tc.scopes...))
			if !errors.Is(err, tc.reason) || !strings.Contains(fmt.Sprint(err), tc.want) ||
				strings.Contains(err.Error(), "eyJ") {
				t.Errorf("got %v, want %s with %s", err, tc.reason, tc.want)
			}
		})
	}
}
