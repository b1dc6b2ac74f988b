package azure_test

import (
	"io"
	"log"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

// A real push and pull: the client follows the challenge of the registry with the credential of the keychain.
func TestPushAndPull(t *testing.T) {
	clearEnvironment(t)
	w := newWorld(t)
	content := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	w.cloud.Azure().SetRegistry("example.azurecr.io", authtest.AzureRegistry{Tenant: tenantID, Pull: []string{clientA}, Handler: content})
	providers, err := auth.NewProviderSet(&azure.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := testworld.Cache(t)
	options := func(tenant string) []remote.Option {
		keychain := auth.NewKeychain(providers, w.options(tenant, "app", auth.WithCache(tokens, object(tenant)))...)
		return []remote.Option{remote.WithAuthFromKeychain(keychain), remote.WithTransport(w.http.Transport), remote.WithContext(t.Context())}
	}
	ref, err := name.ParseReference("example.azurecr.io/team/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(64, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, options("tenant-a")...); err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, options("tenant-a")...)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := image.Digest()
	if got, err := pulled.Digest(); err != nil || got != want {
		t.Errorf("pulled %s, %v", got, err)
	}
	if n := w.cloud.Calls("acr", "exchange"); n != 1 {
		t.Errorf("%d exchanges at the registry", n)
	}
	_, err = remote.Image(ref, options("tenant-b")...)
	testworld.CheckError(t, err, auth.ErrDenied, "AcrPull")
	if _, err := remote.Image(ref, remote.WithTransport(w.http.Transport), remote.WithContext(t.Context())); err == nil {
		t.Error("the registry demands nothing")
	} else if refused, ok := err.(*transport.Error); ok && !strings.Contains(refused.Error(), "UNAUTHORIZED") { //nolint:errorlint // bare
		t.Errorf("got %v", err)
	}
}

// Access is never anonymous because a setting is wrong.
func TestKeychainReportsMisconfiguration(t *testing.T) {
	clearEnvironment(t)
	for want, p := range map[string]*azure.Provider{
		"private cloud 0":     {PrivateClouds: []azure.Cloud{{AuthorityHost: "http://x"}}},
		"belongs to Azure US": {},
	} {
		for _, host := range []string{"example.azurecr.us", "example.azurecr.us:443"} {
			target, err := name.NewRegistry(host)
			if err != nil {
				t.Fatal(err)
			}
			providers, err := auth.NewProviderSet(p)
			if err != nil {
				t.Fatal(err)
			}
			_, err = auth.NewKeychain(providers).ResolveContext(t.Context(), target)
			testworld.CheckError(t, err, auth.ErrMisconfigured, want)
		}
	}
}
