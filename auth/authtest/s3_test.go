package authtest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

func TestAnonymousRequestsToBuckets(t *testing.T) {
	cloud := testworld.Cloud(t)
	for name, public := range map[string]bool{"public": true, "private": false} {
		cloud.AWS().SetBucket(name, authtest.S3Bucket{Account: "123456789012", Region: "eu-west-2", Public: public})
	}
	for request, want := range map[string]int{
		"GET https://public.s3.eu-west-2.amazonaws.com/missing":     404,
		"GET https://s3.eu-west-2.amazonaws.com/public/missing":     404,
		"PUT https://public.s3.eu-west-2.amazonaws.com/mine":        403,
		"GET https://private.s3.eu-west-2.amazonaws.com/missing":    403,
		"GET https://public.s3.eu-west-1.amazonaws.com/missing":     301,
		"GET https://nobodys.s3.eu-west-2.amazonaws.com/missing":    404,
		"DELETE https://public.s3.eu-west-2.amazonaws.com/missing":  405,
		"GET https://public.s3.eu-west-2.amazonaws.com/":            405,
		"GET https://s3.eu-west-2.amazonaws.com/private/x?x-id=Get": 403,
	} {
		t.Run(request, func(t *testing.T) {
			method, url, _ := strings.Cut(request, " ")
			req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := cloud.Client().Transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() //nolint:errcheck // nothing was written
			if resp.StatusCode != want {
				t.Errorf("HTTP %d, want %d", resp.StatusCode, want)
			}
		})
	}
}

// MinIO serves S3 and STS at one address.
func TestBucketAndSTSAtOneHost(t *testing.T) {
	cloud := testworld.Cloud(t)
	cloud.AWS().AddSTSHost("minio.example")
	cloud.AWS().SetBucket("b", authtest.S3Bucket{Account: "123456789012", Region: "us-east-1", Host: "minio.example"})
	id, secret := cloud.AWS().AddUser("123456789012", "me")
	endpoint, provider := aws.String("https://minio.example"), credentials.NewStaticCredentialsProvider(id, secret, "")
	put(t, s3.New(s3.Options{Region: "us-east-1", BaseEndpoint: endpoint, UsePathStyle: true, HTTPClient: cloud.Client(), Credentials: provider,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired}))
	client := sts.New(sts.Options{Region: "us-east-1", BaseEndpoint: endpoint, HTTPClient: cloud.Client(), Credentials: provider})
	if _, err := client.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, client *s3.Client) {
	t.Helper()
	key := "a b/+%ü"
	in := &s3.PutObjectInput{Bucket: aws.String("b"), Key: &key, Body: strings.NewReader("content")}
	if _, err := client.PutObject(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	out, err := client.GetObject(context.Background(), &s3.GetObjectInput{Bucket: aws.String("b"), Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close() //nolint:errcheck // nothing was written
	if content, err := io.ReadAll(out.Body); err != nil || string(content) != "content" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("b"), Key: &key}); err != nil {
		t.Error(err)
	}
}
