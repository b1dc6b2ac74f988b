package token_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	registryHost    = "example.com" // the certificate of httptest is for this host
	bearerChallenge = `Bearer realm="https://example.com/token",service="registry"`
	basicChallenge  = `Basic realm="registry"`
)

// guarded is a registry that trusts the issuer's ServiceAccount tokens, as
// bearer or as password of the user "token".
type guarded struct {
	inner     http.Handler
	issuer    *cloudtest.Issuer
	audience  string
	password  bool
	challenge string
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if user, password, _ := r.BasicAuth(); g.password && user == "token" {
		raw = password
	}
	if sa, err := g.issuer.Verify(raw, g.audience); err != nil || sa != app {
		w.Header().Set("WWW-Authenticate", g.challenge)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	g.inner.ServeHTTP(w, r)
}

// startRegistry returns the transport of a client for the registry.
func startRegistry(t *testing.T, issuer *cloudtest.Issuer, g *guarded) http.RoundTripper {
	t.Helper()
	g.inner, g.issuer = registry.New(registry.Logger(log.New(t.Output(), "", 0))), issuer
	server := httptest.NewTLSServer(g)
	t.Cleanup(server.Close)
	toServer, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("httptest has another transport")
	}
	toServer.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	return toServer
}

func keychain(t *testing.T, provider *token.Provider, opts ...auth.Option) *auth.Keychain {
	t.Helper()
	providers, err := auth.NewProviderSet(provider)
	if err != nil {
		t.Fatal(err)
	}
	return auth.NewKeychain(providers, opts...)
}

// A registry that trusts the cluster's issuer takes pushes and pulls with the
// ServiceAccount's token.
func TestRegistryThatTrustsTheIssuer(t *testing.T) {
	for mode, tc := range map[string]struct {
		registry token.Registry
		server   guarded
	}{
		"bearer with the host as audience": {token.Registry{Host: registryHost},
			guarded{audience: registryHost, challenge: bearerChallenge}},
		"bearer with an audience": {token.Registry{Host: registryHost, Audience: "zot"},
			guarded{audience: "zot", challenge: bearerChallenge}},
		"bearer after a Basic challenge": {token.Registry{Host: registryHost},
			guarded{audience: registryHost, challenge: basicChallenge}},
		"password beside a user name": {token.Registry{Host: registryHost, Username: "token"},
			guarded{audience: registryHost, password: true, challenge: basicChallenge}},
	} {
		t.Run(mode, func(t *testing.T) {
			issuer, c := newIssuer(t)
			to := startRegistry(t, issuer, &tc.server)
			ref, err := name.ParseReference(registryHost + "/team/app:v1")
			if err != nil {
				t.Fatal(err)
			}
			image, err := random.Image(64, 1)
			if err != nil {
				t.Fatal(err)
			}
			opts := []remote.Option{remote.WithTransport(to), remote.WithContext(t.Context()),
				remote.WithAuthFromKeychain(keychain(t,
					&token.Provider{Registries: []token.Registry{tc.registry}}, auth.WithServiceAccount(app, c),
					auth.WithCache(testenv.Cache(t), object)))}
			if err := remote.Write(ref, image, opts...); err != nil {
				t.Fatal(err)
			}
			if _, err := remote.Image(ref, opts...); err != nil {
				t.Error(err)
			}
			if n := issuer.TokenRequests(); n != 1 {
				t.Errorf("%d TokenRequests, want 1", n)
			}
		})
	}
}

func TestRegistryRefusesTokens(t *testing.T) {
	for mode, tc := range map[string]struct {
		account  string
		audience string
	}{
		"another ServiceAccount": {"other", registryHost},
		"another audience":       {"app", "vault"},
	} {
		t.Run(mode, func(t *testing.T) {
			issuer := testenv.Issuer(t)
			c := issuer.Client(testenv.ServiceAccount("tenant-a", tc.account))
			to := startRegistry(t, issuer, &guarded{audience: registryHost, challenge: bearerChallenge})
			key := app
			key.Name = tc.account
			chain := keychain(t, &token.Provider{Registries: []token.Registry{{Host: registryHost, Audience: tc.audience}}},
				auth.WithServiceAccount(key, c), auth.WithOwner(object))
			ref, err := name.ParseReference(registryHost + "/team/app:v1")
			if err != nil {
				t.Fatal(err)
			}
			_, err = remote.Image(ref, remote.WithTransport(to), remote.WithAuthFromKeychain(chain))
			var refused *transport.Error
			if !errors.As(err, &refused) || refused.StatusCode != http.StatusUnauthorized {
				t.Errorf("got %v", err)
			}
		})
	}
}

// No token is sent to a registry that a tenant names, even if its host looks
// like a known one.
func TestRegistriesThatTheControllerDoesNotAllow(t *testing.T) {
	issuer, c := newIssuer(t)
	provider := &token.Provider{Registries: []token.Registry{{Host: "registry.example"}, {Host: "registry.example:5000"}}}
	for _, repository := range []string{
		"evil.example/app", "registry.example.evil.example/app", "evil-registry.example/app", "registry.example:5001/app",
		"registry.example@evil.example/app", "vault/app", "sub.registry.example/app",
	} {
		t.Run(repository, func(t *testing.T) {
			for kind, p := range map[string]*token.Provider{"a list": provider, "no list": {}} {
				_, err := auth.GetArtifactRegistryCredentials(t.Context(), p, repository, auth.WithServiceAccount(app, c),
					auth.WithOwner(object))
				if !errors.Is(err, auth.ErrMisconfigured) {
					t.Errorf("%s: got %v", kind, err)
				}
			}
			host, _, _ := strings.Cut(repository, "/")
			if got, err := keychain(t, provider, auth.WithServiceAccount(app, c),
				auth.WithOwner(object)).Resolve(resource(host)); err != nil || got != authn.Anonymous {
				t.Errorf("the keychain returns %v, %v", got, err)
			}
		})
	}
	if n := issuer.TokenRequests(); n != 0 {
		t.Errorf("%d TokenRequests", n)
	}
}

// A Host that would match no registry is reported, also by a keychain, which
// would otherwise return anonymous access.
func TestHostThatIsNotCanonical(t *testing.T) {
	issuer, c := newIssuer(t)
	opts := []auth.Option{auth.WithServiceAccount(app, c), auth.WithOwner(object)}
	for _, host := range []string{"https://zot.example", "zot.example/", "zot.example/team", "hunter2@zot.example",
		"ZOT.example", "zot.example:443", ""} {
		t.Run(host, func(t *testing.T) {
			provider := &token.Provider{Registries: []token.Registry{{Host: "first.example"}, {Host: host}}}
			_, accessToken := auth.GetAccessToken(t.Context(), provider, append(opts, auth.WithAudiences("vault"), allowed)...)
			_, credentials := auth.GetArtifactRegistryCredentials(t.Context(), provider, "zot.example/app", opts...)
			_, resolved := keychain(t, provider, opts...).Resolve(resource("zot.example"))
			for call, err := range map[string]error{"access token": accessToken, "credentials": credentials,
				"keychain": resolved} {
				testenv.CheckError(t, err, auth.ErrMisconfigured)
				_, shown, _ := strings.Cut(host, "hunter2")
				if text := fmt.Sprint(err); !strings.Contains(text, shown) || strings.Contains(text, "hunter2") {
					t.Errorf("%s: got %v", call, err)
				}
			}
		})
	}
	if n := issuer.TokenRequests(); n != 0 {
		t.Errorf("%d TokenRequests", n)
	}
}

type resource string

func (r resource) String() string      { return string(r) }
func (r resource) RegistryStr() string { return string(r) }

func TestAudienceOfARegistry(t *testing.T) {
	issuer, c := newIssuer(t)
	provider := &token.Provider{Registries: []token.Registry{
		{Host: "a.example:5000"}, {Host: "b.example", Audience: "zot"}, {Host: "kubernetes.default.svc"}}}
	for name, tc := range map[string]struct {
		repository string
		opts       []auth.Option
		want       string // empty: refused
	}{
		"the host with its port":         {"A.example:5000/app", nil, "a.example:5000"},
		"the controller's":               {"b.example:443/app", nil, "zot"},
		"the caller's, allowed":          {"b.example/app", []auth.Option{auth.WithAudiences("vault"), allowed}, "vault"},
		"the caller's, not allowed":      {"b.example/app", []auth.Option{auth.WithAudiences("vault")}, ""},
		"the API server's is never sent": {"kubernetes.default.svc/app", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, tc.repository,
				append(tc.opts, auth.WithServiceAccount(app, c), auth.WithOwner(object))...)
			if tc.want == "" {
				testenv.CheckError(t, err, auth.ErrDenied)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			config, err := got.Authorization()
			if err != nil || config.Password != "" || config.Username != "" {
				t.Errorf("user name %q beside a bearer token, %v", config.Username, err)
			}
			if _, err := issuer.Verify(config.RegistryToken, tc.want); err != nil {
				t.Errorf("for the audience %q: %v", tc.want, err)
			}
		})
	}
}

// Providers with other user names may share a cache.
func TestUserNameOfARegistryIsInTheKey(t *testing.T) {
	_, c := newIssuer(t)
	tokens := testenv.Cache(t)
	for _, user := range []string{"a", "b", ""} {
		provider := &token.Provider{Registries: []token.Registry{{Host: "registry.example", Username: user}}}
		got, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "registry.example/app",
			auth.WithServiceAccount(app, c), auth.WithCache(tokens, cache.InvolvedObject{Namespace: "tenant-a", Name: "b"}))
		if err != nil {
			t.Fatal(err)
		}
		if config, _ := got.Authorization(); config.Username != user {
			t.Errorf("user name %q, want %q", config.Username, user)
		}
	}
}
