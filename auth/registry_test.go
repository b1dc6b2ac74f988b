package auth_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// demandingRegistry is a registry that requires the credential of tenant-a, and
// counts the requests by credential.
type demandingRegistry struct {
	http.Handler
	refused, credentials atomic.Int64
	accept               func(user, password string) bool
}

func (d *demandingRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, ok := r.BasicAuth()
	if r.Header.Get("Authorization") != "" {
		d.credentials.Add(1)
	}
	if d.accept != nil && (!ok || !d.accept(user, password)) {
		d.refused.Add(1)
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		http.Error(w, "Not Authorized", http.StatusUnauthorized)
		return
	}
	d.Handler.ServeHTTP(w, r)
}

// dialTo sends everything to one server, whatever the host.
func dialTo(server *httptest.Server) http.RoundTripper {
	client := server.Client()
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		panic("httptest gives another transport")
	}
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	return transport
}

// A real push and pull, with the credential of the provider that knows the
// registry, and none for the others.
func TestKeychain(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	key := k8s.create("tenant-a", "app", nil)
	ours := &demandingRegistry{Handler: registry.New(), accept: func(user, password string) bool {
		return user == "user" && strings.HasPrefix(password, "registry example.com[tenant-a/app#")
	}}
	server := httptest.NewTLSServer(ours) // its certificate is for example.com
	defer server.Close()
	other := &demandingRegistry{Handler: registry.New()}
	otherServer := httptest.NewServer(other)
	defer otherServer.Close()

	providers := newSet(t, &exchange{}, named{provider, "clouds"})
	for tokensName, tokens := range map[string]auth.Option{
		"without a cache": testenv.Owner("tenant-a"),
		"with a cache":    testenv.Cached(t, "tenant-a"),
	} {
		t.Run(tokensName, func(t *testing.T) {
			keychain := auth.NewKeychain(providers, auth.WithServiceAccount(key, k8s), tokens)
			push := func(repository string, rt http.RoundTripper, opts ...name.Option) error {
				ref, err := name.ParseReference(repository, opts...)
				if err != nil {
					t.Fatal(err)
				}
				image, err := random.Image(64, 2)
				if err != nil {
					t.Fatal(err)
				}
				remoteOpts := []remote.Option{remote.WithAuthFromKeychain(keychain), remote.WithTransport(rt),
					remote.WithContext(t.Context())}
				if err := remote.Write(ref, image, remoteOpts...); err != nil {
					return err
				}
				pulled, err := remote.Image(ref, remoteOpts...)
				if err != nil {
					return err
				}
				_, err = pulled.RawManifest()
				return err
			}
			if err := push("example.com/app:v1", dialTo(server)); err != nil {
				t.Error(err)
			}
			before := provider.derived.Load()
			if err := push(strings.TrimPrefix(otherServer.URL, "http://")+"/app:v1", http.DefaultTransport,
				name.Insecure); err != nil {
				t.Error(err)
			}
			if provider.derived.Load() != before || other.credentials.Load() != 0 {
				t.Error("the other registry saw a credential, or one was made for it")
			}
		})
	}
	if ours.credentials.Load() == 0 {
		t.Error("the registry saw no credential")
	}
	// What cannot be had is an error, not anonymous access.
	k8s.remove(key)
	repo, err := name.NewRepository("example.com/app")
	if err != nil {
		t.Fatal(err)
	}
	keychain := auth.NewKeychain(providers, auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a"))
	if a, err := keychain.Resolve(repo); a != nil || !errors.Is(err, auth.ErrMisconfigured) {
		t.Errorf("got %v, %v", a, err)
	}
	sameHost, err := name.NewRegistry("example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	if a, err := keychain.ResolveContext(t.Context(), sameHost); a != nil || !errors.Is(err, auth.ErrMisconfigured) {
		t.Errorf("with the port: got %v, %v", a, err)
	}
	for _, host := range []string{"index.docker.io", "evil-example.com", "example.com.evil.org", "example.com:5000"} {
		reg, err := name.NewRegistry(host)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := keychain.ResolveContext(t.Context(), reg); a != authn.Anonymous || err != nil {
			t.Errorf("%s: got %v, %v", host, a, err)
		}
	}
}

// named gives a provider another name.
type named struct {
	*clouds
	name string
}

func (n named) GetName() string { return n.name }

// An authenticator of a provider that an object names fails for a foreign
// registry. A strict keychain fails too.
func TestForeignRegistries(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	opts := []auth.Option{auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
		testenv.Cached(t, "tenant-a")}
	providers := newSet(t, named{provider, "clouds"})
	keychain := auth.NewKeychain(providers, opts...)
	keychain.Strict = true
	for name, get := range map[string]func(repository string) (authn.Authenticator, error){
		"authenticator": func(repository string) (authn.Authenticator, error) {
			return auth.NewRegistryAuthenticator(provider, repository, opts...), nil
		},
		"strict keychain": func(repository string) (authn.Authenticator, error) {
			parsed, err := name.NewRepository(repository)
			if err != nil {
				t.Fatal(err)
			}
			return keychain.Resolve(parsed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			own, err := get("r.example.com/app")
			if err != nil {
				t.Fatal(err)
			}
			if config, err := authn.Authorization(t.Context(), own); err != nil || config.Username != "user" {
				t.Errorf("own registry: %v, %v", config, err)
			}
			foreign, err := get("ghcr.io/org/app")
			if err == nil {
				_, err = authn.Authorization(t.Context(), foreign)
			}
			testenv.CheckError(t, err, auth.ErrMisconfigured, `"ghcr.io`)
		})
	}
}

func TestRegistryAuthenticatorInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k8s, provider := newCluster(), newClouds()
		a := auth.NewRegistryAuthenticator(provider, "r.example.com/app",
			auth.WithServiceAccount(k8s.create("tenant-a", "app", nil), k8s),
			testenv.Cached(t, "tenant-a"))
		testenv.CheckInvalidate(t, a, func() (string, error) {
			config, err := a.Authorization()
			if err != nil {
				return "", err
			}
			return config.Password, nil
		})
	})
}
