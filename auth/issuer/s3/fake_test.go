package s3_test

import (
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

// MinIO serves S3 and STS at one address.
func TestBucketAndSTSAtOneHost(t *testing.T) {
	cloud := testworld.Cloud(t)
	cloud.AWS().AddSTSHost("minio.example")
	cloud.AWS().SetBucket("b", authtest.S3Bucket{Account: "123456789012", Region: "us-east-1", Host: "minio.example"})
	id, secret := cloud.AWS().AddUser("123456789012", "me")
	endpoint, provider := aws.String("https://minio.example"), credentials.NewStaticCredentialsProvider(id, secret, "")
	put(t, sdk.New(sdk.Options{Region: "us-east-1", BaseEndpoint: endpoint, UsePathStyle: true, HTTPClient: cloud.Client(), Credentials: provider,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired}))
	client := sts.New(sts.Options{Region: "us-east-1", BaseEndpoint: endpoint, HTTPClient: cloud.Client(), Credentials: provider})
	if _, err := client.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, client *sdk.Client) {
	t.Helper()
	key := "a b/+%ü"
	in := &sdk.PutObjectInput{Bucket: aws.String("b"), Key: &key, Body: strings.NewReader("content")}
	if _, err := client.PutObject(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	out, err := client.GetObject(t.Context(), &sdk.GetObjectInput{Bucket: aws.String("b"), Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close() //nolint:errcheck // nothing was written
	if content, err := io.ReadAll(out.Body); err != nil || string(content) != "content" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := client.HeadObject(t.Context(), &sdk.HeadObjectInput{Bucket: aws.String("b"), Key: &key}); err != nil {
		t.Error(err)
	}
}
