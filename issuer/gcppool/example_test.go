package gcppool_test

import (
	"context"
	"fmt"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/gcppool"
)

// A program opens the store and gives it to an issuer.Publisher, which reads
// and writes like this.
func Example() {
	ctx := context.Background()
	cloud, err := cloudtest.NewCloud() // the Google Cloud of this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	cloud.GCP().SetWorkloadIdentityProvider(name, cloudtest.WorkloadIdentityProvider{
		Issuer: cluster, Admins: []string{"serviceAccount:" + email}})

	token := &oauth2.Token{AccessToken: cloud.GCP().IssueAccessToken(email)}
	store, err := gcppool.Open(name, gcppool.Options{
		TokenSource: oauth2.StaticTokenSource(token), // without: from the environment
		HTTPClient:  cloud.Client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Write(ctx, issuer.KeysFile, []byte(keyA), ""); err != nil {
		fmt.Println(err)
		return
	}
	content, _, err := store.Read(ctx, issuer.KeysFile)
	fmt.Println(string(content), err)
	// Output: {"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"a","n":"sXch","e":"AQAB"}]} <nil>
}
