package s3_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/s3"
)

// A program opens the store and gives it to an issuer.Publisher, which reads
// and writes like this.
func Example() {
	ctx := context.Background()
	cloud, err := cloudtest.NewCloud() // the AWS of this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	cloud.AWS().SetBucket("my-oidc-bucket", cloudtest.S3Bucket{Account: "123456789012", Region: "eu-central-1"})
	id, secret := cloud.AWS().AddUser("123456789012", "publisher")

	store, err := s3.Open(ctx, "my-oidc-bucket", s3.Options{
		Prefix: "cluster-1", Region: "eu-central-1", Owner: "123456789012",
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, ""), // without: from the environment
		HTTPClient:  cloud.Client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Write(ctx, issuer.KeysFile, []byte(`{"keys":[]}`), ""); err != nil {
		fmt.Println(err)
		return
	}
	content, _, err := store.Read(ctx, issuer.KeysFile)
	fmt.Println(string(content), err)
	// Output: {"keys":[]} <nil>
}
