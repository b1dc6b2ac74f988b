package issuer_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/directory"
)

func ExamplePublisher() {
	// A stand-in for the API server. A program takes rest.InClusterConfig or controller-runtime's config.GetConfig.
	keys, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		panic(err)
	}
	apiServer := httptest.NewServer(keys)
	defer apiServer.Close()
	cluster := &rest.Config{Host: apiServer.URL}

	web, err := os.MkdirTemp("", "oidc-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(web)
	store, err := directory.Open(web)
	if err != nil {
		panic(err)
	}
	publisher := &issuer.Publisher{
		Cluster: cluster,
		Issuer:  "https://oidc.example.com/cluster-1",
		Store:   store,
	}
	result, err := publisher.Publish(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("wrote", result.Written)
	fmt.Println("warnings:", result.Warnings)

	result, err = publisher.Publish(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("wrote", result.Written)
	document, err := os.ReadFile(filepath.Join(web, issuer.DiscoveryFile))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", document)
	// Output:
	// wrote [.workloadid/keys.json openid/v1/jwks .well-known/openid-configuration]
	// warnings: []
	// wrote []
	// {"issuer":"https://oidc.example.com/cluster-1","jwks_uri":"https://oidc.example.com/cluster-1/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"]}
}
