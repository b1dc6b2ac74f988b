package gcp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/client-go/rest"

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
	w.cloud.GCP().SetRepository(repository, "serviceAccount:"+email("tenant-a"))
	w.cloud.GCP().SetRegistryHandler(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	providers, err := auth.NewProviderSet(&gcp.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	keychain := func(tenant string) remote.Option {
		return remote.WithAuthFromKeychain(auth.NewKeychain(providers,
			w.options(tenant, "app", auth.WithCache(testenv.Cache(t), object(tenant)))...))
	}
	ref, err := name.ParseReference(repository + "/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	transport, ctx := remote.WithTransport(w.cloud.Client().Transport), remote.WithContext(t.Context())
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
	if n := w.cloud.Calls("iamcredentials", ""); n != 1 {
		t.Errorf("%d tokens for a push and a pull", n)
	}
	for who, option := range map[string]remote.Option{"tenant B": keychain("tenant-b"),
		"nobody": remote.WithAuth(authn.Anonymous)} {
		if _, err := remote.Image(ref, option, transport, ctx); err == nil {
			t.Errorf("%s pulls the image", who)
		}
	}
}

func ask(t *testing.T, config *rest.Config, path string) string {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer httpClient.CloseIdleConnections()
	status, body := read(t, httpClient, config.Host+path)
	return fmt.Sprint(status, " ", body)
}

// A DNS endpoint is trusted by the system's roots: the config has no
// certificate authority of its own.
func TestDNSEndpointUsesTheSystemsRoots(t *testing.T) {
	w := newEnvironment(t)
	w.setCluster(cloudtest.GKECluster{DNSEndpoint: dnsEndpoint, CA: w.cloud.CA()})
	config, err := auth.GetClusterConfig(t.Context(), &gcp.Provider{},
		w.options("tenant-a", "app", auth.WithClusterResource(clusterName))...)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://"+dnsEndpoint+":443" || len(config.CAData) != 0 || config.Insecure {
		t.Errorf("host %q, CA %.60q, insecure %t", config.Host, config.CAData, config.Insecure)
	}
	// With roots that know the cloud's authority, the connection is made.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.cloud.CA())
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		if addr != dnsEndpoint+":443" {
			t.Errorf("dialled %q", addr)
		}
		return w.cloud.DialContext(ctx, "tcp", "sts.googleapis.com:443")
	}
	config.TLSClientConfig = rest.TLSClientConfig{}
	config.Transport = &http.Transport{DialContext: dial,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	if got := ask(t, config, "/version"); !strings.HasPrefix(got, "421 ") {
		t.Errorf("got %s", got) // the cloud has no service of that name
	}
}

// The name has no use where address and CA are known: one of the three is a
// mistake.
func TestClusterByAllThreeIsRefused(t *testing.T) {
	w := newEnvironment(t)
	_, err := auth.GetRESTConfig(t.Context(), &gcp.Provider{},
		w.options("tenant-a", "app", auth.WithClusterResource(clusterName),
			auth.WithClusterAddress("https://10.0.0.1"), auth.WithCAData(string(w.cloud.CA())))...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "all set", "leave one of them out")
}
