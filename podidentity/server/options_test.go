package server_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/podidentity/server"
)

func TestOptions(t *testing.T) {
	sts := func(host string) func(*server.Options) {
		return func(o *server.Options) { o.AuthOptions = []auth.Option{auth.WithSTSEndpoint("https://" + host)} }
	}
	for name, test := range map[string]struct {
		change func(*server.Options)
		want   string // none: accepted
	}{
		"no client":                  {func(o *server.Options) { o.Client = nil }, "Options.Client"},
		"no audience":                {func(o *server.Options) { o.Audience = "" }, "Options.Audience"},
		"no cache":                   {func(o *server.Options) { o.Cache = nil }, "Options.Cache"},
		"no cluster":                 {func(o *server.Options) { o.Cluster = "" }, "Options.Cluster"},
		"an STS that is not AWS's":   {sts("minio.example.com"), `"https://minio.example.com"`},
		"AWS's STS":                  {sts("sts.eu-central-1.amazonaws.com"), ""},
		"a VPC endpoint of STS":      {sts("vpce-0abc123def4567890-ab12cd34.sts.eu-central-1.vpce.amazonaws.com"), ""},
		"a cluster with a dot":       {func(o *server.Options) { o.Cluster = "a.b" }, `Options.Cluster "a.b"`},
		"a cluster in upper case":    {func(o *server.Options) { o.Cluster = "Prod" }, `Options.Cluster "Prod"`},
		"a cluster that is too long": {func(o *server.Options) { o.Cluster = strings.Repeat("a", 64) }, "Options.Cluster"},
		"a cache without capacity":   {func(o *server.Options) { o.Cache = emptyCache(t) }, "Options.Cache"},
	} {
		t.Run(name, func(t *testing.T) {
			options := server.Options{Client: fake.NewClientBuilder().Build(), Audience: audience, Cluster: "prod",
				Cache: testenv.Cache(t)}
			test.change(&options)
			_, err := server.New(options)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func emptyCache(t *testing.T) *cache.TokenCache {
	t.Helper()
	c, err := cache.NewTokenCache(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// unverified is a manager whose API server any host could answer for. It
// panics if the server uses it.
type unverified struct{ ctrl.Manager }

func (unverified) GetConfig() *rest.Config {
	return &rest.Config{Host: "https://10.0.0.1", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func TestSetupRefusesAnUnverifiedAPIServer(t *testing.T) {
	err := (&server.Server{}).SetupWithManager(unverified{})
	if err == nil || !strings.Contains(err.Error(), "insecure-skip-tls-verify") {
		t.Errorf("got %v, want an error that names insecure-skip-tls-verify", err)
	}
}
