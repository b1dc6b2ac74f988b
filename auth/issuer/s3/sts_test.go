package s3_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/internal/testing/storetest"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

// STS fetches the documents without credentials, as AWS does, and verifies a token with them.
func TestSTSVerifiesTokensWithPublishedDocuments(t *testing.T) {
	const roleARN, url = "arn:aws:iam::" + account + ":role/tenant-a", "https://" + host + "/cluster-1"
	w := newEnvironment(t, authtest.S3Bucket{Public: true})
	tokens, err := authtest.NewIssuer(authtest.IssuerConfig{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	store := w.open(t)
	for _, path := range []string{issuer.KeysFile, issuer.DiscoveryFile} {
		content, _ := storetest.Get(t, tokens.HTTPClient(), url+"/"+path)
		if err := store.Write(t.Context(), path, content, ""); err != nil {
			t.Fatal(err)
		}
	}
	w.cloud.AWS().AddOIDCProvider(account, url, w.cloud.Client(), "sts.amazonaws.com")
	w.cloud.AWS().SetRole(roleARN, authtest.Trust{Issuer: url, Subjects: []string{"system:serviceaccount:tenant-a:app"}})
	token, err := tokens.Sign(tokens.Claims(testworld.ServiceAccount("tenant-a", "app"), []string{"sts.amazonaws.com"}, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	assume := func() error {
		_, err := sts.New(sts.Options{Region: region, HTTPClient: w.cloud.Client(), RetryMaxAttempts: 1}).AssumeRoleWithWebIdentity(t.Context(),
			&sts.AssumeRoleWithWebIdentityInput{RoleArn: aws.String(roleARN), RoleSessionName: aws.String("session"), WebIdentityToken: &token})
		return err
	}
	if err := assume(); err != nil {
		t.Error(err)
	}
	w.cloud.AWS().SetBucket(bucket, authtest.S3Bucket{Account: account, Region: region})
	w.cloud.AWS().AddOIDCProvider(account, url, w.cloud.Client(), "sts.amazonaws.com") // forgets the keys
	if err := assume(); err == nil {
		t.Error("STS reads a bucket that is not public")
	}
}
