package proxy_test

import (
	"context"
	"os"

	"github.com/workloadid/workloadid/podidentity/proxy"
)

// A sidecar: its environment holds the CA of the server and the secret of the applications.
func Example() {
	ctx := context.Background()
	p, err := proxy.New(proxy.Options{
		Server:    "https://iam-credentials-provider.iam-system.svc:8443",
		CA:        []byte(os.Getenv("WORKLOADID_SERVER_CA")),
		TokenFile: "/var/run/secrets/iam.aws.k8s.io/token",
		Secret:    os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
	})
	if err != nil {
		panic(err)
	}
	listeners, err := proxy.Listen(ctx, "127.0.0.1:2020")
	if err != nil {
		panic(err)
	}
	go func() { _ = p.Run(ctx) }()
	if err := proxy.Serve(ctx, p, listeners); err != nil {
		panic(err)
	}
}
