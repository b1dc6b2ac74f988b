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

// A publisher writes the documents to a directory that a web server serves.
// After a rotation of the API server's key it adds the new one.
func Example() {
	// A stand-in for the API server. A program takes rest.InClusterConfig or
	// controller-runtime's config.GetConfig.
	apiServer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	listening := httptest.NewServer(apiServer)
	defer listening.Close()

	web, err := os.MkdirTemp("", "oidc-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(web)
	store, err := directory.Open(web)
	if err != nil {
		fmt.Println(err)
		return
	}
	publisher := &issuer.Publisher{
		Cluster: &rest.Config{Host: listening.URL},
		Issuer:  "https://oidc.example.com/cluster-1", // the "iss" of the cluster's tokens
		Store:   store,
	}
	publish := func() {
		result, err := publisher.Publish(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("wrote", result.Written, "warnings", result.Warnings)
	}
	publish()
	publish() // nothing has changed
	if err := apiServer.Rotate(true); err != nil {
		fmt.Println(err)
		return
	}
	publish()

	document, err := os.ReadFile(filepath.Join(web, issuer.DiscoveryFile))
	fmt.Printf("%s %v\n", document, err)
	// Output:
	// wrote [.workloadid/keys.json openid/v1/jwks .well-known/openid-configuration] warnings []
	// wrote [] warnings []
	// wrote [.workloadid/keys.json openid/v1/jwks] warnings []
	// {"issuer":"https://oidc.example.com/cluster-1","jwks_uri":"https://oidc.example.com/cluster-1/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"]} <nil>
}
