package azure_test

import (
	"io"
	"log"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// A real push and pull: the client follows the challenge of the registry with
// the credential of the keychain.
func TestPushAndPull(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	content := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	w.Cloud.Azure().SetRegistry("example.azurecr.io",
		cloudtest.AzureRegistry{Tenant: tenantID, Pull: []string{clientA}, Handler: content})
	providers, err := auth.NewProviderSet(&azure.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := testenv.Cache(t)
	options := func(tenant string) []remote.Option {
		keychain := auth.NewKeychain(providers, w.Options(tenant, "app", testenv.WithCache(tokens, tenant))...)
		return []remote.Option{remote.WithAuthFromKeychain(keychain), remote.WithTransport(w.http.Transport),
			remote.WithContext(t.Context())}
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
	if n := w.Cloud.Calls("acr", "exchange"); n != 1 {
		t.Errorf("%d exchanges at the registry", n)
	}
	_, err = remote.Image(ref, options("tenant-b")...)
	testenv.CheckError(t, err, auth.ErrDenied, "AcrPull")
	if _, err := remote.Image(ref, remote.WithTransport(w.http.Transport), remote.WithContext(t.Context())); err == nil {
		t.Error("the registry demands nothing")
	} else if refused, ok := err.(*transport.Error); ok && //nolint:errorlint // bare
		!strings.Contains(refused.Error(), "UNAUTHORIZED") {
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
			testenv.CheckError(t, err, auth.ErrMisconfigured, want)
		}
	}
}

// What is named as Azure's registries are, and is none, is a mistake that
// anonymous access would hide.
func TestHostsOfTheKeychain(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	p := &azure.Provider{PrivateClouds: []azure.Cloud{privateCloud()}}
	providers, err := auth.NewProviderSet(p)
	if err != nil {
		t.Fatal(err)
	}
	type outcome int
	const (
		credentials outcome = iota
		anonymous
		refused
	)
	for host, want := range map[string]outcome{
		"example.azurecr.io":                           credentials,
		"example-h4sh.azurecr.io":                      credentials,
		"example.eastus2.geo.azurecr.io":               credentials,
		"example-h4sh.westeurope.geo.azurecr.io":       credentials,
		"Example.EastUS2.geo.azurecr.io:443":           credentials,
		"mcr.microsoft.com":                            anonymous,
		"eastus2.data.mcr.microsoft.com":               anonymous,
		"example.eastus2.data.azurecr.io":              anonymous,
		"example-h4sh.eastus2.data.azurecr.cn":         anonymous,
		"exampleazurecr.io":                            anonymous,
		"azurecr.io.evil.example":                      anonymous,
		"example.eastus2.geoazurecr.io":                anonymous,
		"example.eastus2.dataazurecr.io":               anonymous,
		"ghcr.io":                                      anonymous,
		"azurecr.io":                                   refused,
		"shrt.azurecr.io":                              refused,
		"exa-mple-x.azurecr.io":                        refused,
		"example.azurecr.io:8443":                      refused,
		"geo.azurecr.io":                               refused,
		"eastus2.geo.azurecr.io":                       refused,
		"a.b.example.eastus2.geo.azurecr.io":           refused,
		"example.east-us.geo.azurecr.io":               refused,
		"example.eastus2.replica.azurecr.io":           refused,
		"data.azurecr.io":                              refused,
		"eastus2.data.azurecr.io":                      refused,
		"a.example.eastus2.data.azurecr.io":            refused,
		"example.chinanorth3.geo.azurecr.cn":           refused, // of another cloud
		"example.usgovvirginia.geo.azurecr.us":         refused,
		"example.azurecr.de":                           refused, // Azure Germany has closed
		"example.germanycentral.geo.azurecr.de":        refused,
		"example.east.geo." + ownRegistry:              refused, // of another cloud
		"example.unknown." + ownRegistry:               refused,
		"example.east.data." + ownRegistry:             anonymous,
		"evil-azurecr.azs.contoso.example":             anonymous,
		"example.eastus2.geo.azurecr.io.evil.example":  anonymous,
		"example.eastus2.data.azurecr.io.evil.example": anonymous,
		"evil.example.eastus2.geo-azurecr.io":          anonymous,
		"example.eastus2.data.azurecr.io.azurecr.io":   refused,
	} {
		t.Run(host, func(t *testing.T) {
			login, _, _ := strings.Cut(strings.ToLower(host), ":")
			w.Cloud.Azure().SetRegistry(login, cloudtest.AzureRegistry{Tenant: tenantID, Pull: []string{clientA}})
			target, err := name.NewRegistry(host)
			if err != nil {
				t.Fatal(err)
			}
			before := w.Cloud.Calls("", "")
			keychain := auth.NewKeychain(providers, w.Options("tenant-a", "app")...)
			got, err := keychain.ResolveContext(t.Context(), target)
			switch want {
			case credentials:
				if err != nil || got == authn.Anonymous {
					t.Fatalf("anonymous %t, %v", got == authn.Anonymous, err)
				}
				log := w.Cloud.Log()
				if last := log[len(log)-1]; last.Service != "acr" || last.Host != login || last.Parameters["service"] != login {
					t.Errorf("the exchange: %+v", last)
				}
				return
			case anonymous:
				if err != nil || got != authn.Anonymous {
					t.Errorf("got %v, %v", got, err)
				}
			case refused:
				testenv.CheckError(t, err, auth.ErrMisconfigured, login)
			}
			testenv.ExpectNone(t, w.Cloud.Calls("", "")-before)
			if _, err := p.ParseArtifactRepository(host+"/app", &provider.Options{}); err == nil {
				t.Error("it is a registry")
			}
		})
	}
}
