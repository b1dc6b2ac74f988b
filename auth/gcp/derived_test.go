package gcp_test

import (
	"io"
	"log"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Images are really pushed to and pulled from a registry that demands the
// token, with one exchange for all of it.
func TestPushAndPull(t *testing.T) {
	w := newEnvironment(t)
	const repository = "europe-docker.pkg.dev/project/repo"
	w.Cloud.GCP().SetRepository(repository, "serviceAccount:"+email("tenant-a"))
	w.Cloud.GCP().SetRegistryHandler(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	providers, err := auth.NewProviderSet(&gcp.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	keychain := func(tenant string) remote.Option {
		return remote.WithAuthFromKeychain(auth.NewKeychain(providers,
			w.Options(tenant, "app", testenv.Cached(t, tenant))...))
	}
	ref, err := name.ParseReference(repository + "/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	transport, ctx := remote.WithTransport(w.Cloud.Client().Transport), remote.WithContext(t.Context())
	mine := keychain("tenant-a")
	if err := remote.Write(ref, image, mine, transport, ctx); err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, mine, transport, ctx)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := image.Digest()
	if got, err := pulled.Digest(); err != nil || got != want {
		t.Errorf("got %s, %v", got, err)
	}
	if n := w.Cloud.Calls("iamcredentials", ""); n != 1 {
		t.Errorf("%d tokens for a push and a pull", n)
	}
}

// A DNS endpoint is trusted by the system's roots: the config has no
// certificate authority of its own.
func TestDNSEndpointUsesTheSystemsRoots(t *testing.T) {
	w := newEnvironment(t)
	w.setCluster(cloudtest.GKECluster{DNSEndpoint: dnsEndpoint, CA: w.Cloud.CA()})
	config, err := auth.GetClusterConfig(t.Context(), &gcp.Provider{},
		w.Options("tenant-a", "app", auth.WithClusterResource(clusterName))...)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://"+dnsEndpoint+":443" || len(config.CAData) != 0 || config.Insecure {
		t.Errorf("host %q, CA %.60q, insecure %t", config.Host, config.CAData, config.Insecure)
	}
}
