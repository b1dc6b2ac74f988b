package clouds_test

import (
	"errors"
	"testing"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const tenantRole = "arn:aws:iam::" + account + ":role/tenant-a"

// newKMS returns a client of KMS as controllers use it for decryption, with the
// credentials of tenant-a.
func newKMS(t *testing.T) (*cloudtest.Cloud, *kms.Client) {
	t.Helper()
	w := testenv.New(t, testenv.ServiceAccount("tenant-a", "app", aws.RoleARNAnnotation, tenantRole))
	w.Cloud.AWS().AddOIDCProvider(account, w.Issuer.URL(), w.Issuer.HTTPClient(), aws.DefaultAudience)
	w.Cloud.AWS().SetRole(tenantRole,
		cloudtest.Trust{Issuer: w.Issuer.URL(), Subjects: []string{testenv.Subject("tenant-a", "app")}})
	opts := w.Options("tenant-a", "app", auth.WithSTSRegion("eu-central-1"), testenv.Cached(t, "tenant-a"))
	return w.Cloud, kms.New(kms.Options{Region: "eu-central-1", HTTPClient: w.Cloud.Client(), RetryMaxAttempts: 1,
		Credentials: aws.NewCredentialsProvider(opts...)})
}

func TestDecryptWithKMS(t *testing.T) {
	cloud, c := newKMS(t)
	var denied string
	fakeKMS(cloud, kmsKey, func(role, action string) bool { return role+" "+action != denied })
	sealed, err := c.Encrypt(t.Context(), &kms.EncryptInput{KeyId: sdkaws.String(kmsKey), Plaintext: []byte("a secret")})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob})
	if err != nil || string(opened.Plaintext) != "a secret" || sdkaws.ToString(opened.KeyId) != kmsKey {
		t.Errorf("got %+v, %v", opened, err)
	}
	data, err := c.GenerateDataKey(t.Context(),
		&kms.GenerateDataKeyInput{KeyId: sdkaws.String(kmsKey), KeySpec: "AES_256"})
	if err != nil || len(data.Plaintext) != 32 {
		t.Errorf("data key: %v", err)
	}
	if n := cloud.Calls("sts", ""); n != 1 {
		t.Errorf("%d exchanges for three calls", n)
	}
	denied = tenantRole + " Decrypt"
	_, err = c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob})
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "AccessDeniedException" {
		t.Errorf("without the permission: %v", err)
	}
}

// The SDK's error keeps the reason of a failed exchange.
func TestKMSKeepsTheReason(t *testing.T) {
	cloud, c := newKMS(t)
	cloud.AWS().RemoveRole(tenantRole)
	if _, err := c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: []byte("x")}); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("got %v", err)
	}
}
