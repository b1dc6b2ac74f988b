package aws_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

const keyARN = "arn:aws:kms:eu-central-1:" + account + ":key/3f1b0a52-0000-4000-8000-000000000001"

// A client of KMS as controllers use it for decryption.
func (w *world) kms(creds sdk.CredentialsProvider) *kms.Client {
	return kms.New(kms.Options{Region: "eu-central-1", HTTPClient: w.cloud.Client(), Credentials: creds, RetryMaxAttempts: 1})
}

func TestDecryptWithKMS(t *testing.T) {
	w := newWorld(t)
	var denied string
	testworld.KMS(w.cloud, keyARN, func(role, action string) bool { return role+" "+action != denied })
	tokens, err := cache.NewTokenCache(10)
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	client := w.kms((&aws.Provider{}).NewCredentialsProvider(w.options("tenant-a", "app", auth.WithCache(tokens, object("tenant-a")))...))
	sealed, err := client.Encrypt(t.Context(), &kms.EncryptInput{KeyId: sdk.String(keyARN), Plaintext: []byte("a secret")})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := client.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob})
	if err != nil || string(opened.Plaintext) != "a secret" || sdk.ToString(opened.KeyId) != keyARN {
		t.Errorf("got %q of key %s, %v", opened.Plaintext, sdk.ToString(opened.KeyId), err)
	}
	data, err := client.GenerateDataKey(t.Context(), &kms.GenerateDataKeyInput{KeyId: sdk.String(keyARN), KeySpec: "AES_256"})
	if err != nil || len(data.Plaintext) != 32 {
		t.Errorf("data key: %v", err)
	}
	if n := w.cloud.Calls("sts", ""); n != 1 {
		t.Errorf("%d exchanges for three calls", n)
	}
	denied = role("tenant-a") + " Decrypt"
	_, err = client.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob})
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "AccessDeniedException" {
		t.Errorf("without the permission: %v", err)
	}
}

// The SDK's call ends with its own context while credentials are being fetched, and tells why there are none.
func TestKMSHonoursTheContext(t *testing.T) {
	w := newWorld(t)
	w.cloud.AddFault(authtest.Fault{Service: "sts", Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	client := w.kms(aws.NewCredentialsProvider(w.options("tenant-a", "app")...))
	if _, err := client.Decrypt(ctx, &kms.DecryptInput{CiphertextBlob: []byte("x")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w = newWorld(t)
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	client = w.kms(aws.NewCredentialsProvider(w.options("tenant-a", "app")...))
	if _, err := client.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: []byte("x")}); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("the reason is lost: %v", err)
	}
}

func BenchmarkRetrieve(b *testing.B) {
	tokens, err := cache.NewTokenCache(10)
	if err != nil {
		b.Fatal(err)
	}
	defer tokens.Close()
	opts := append(objectLevel(b), auth.WithCache(tokens, object("tenant-a")), auth.WithSTSRegion("eu-central-1"))
	creds := aws.NewCredentialsProvider(opts...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := creds.Retrieve(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHitRegistry(b *testing.B) {
	benchmarkDerived(b, func(ctx context.Context, p *aws.Provider, opts []auth.Option) error {
		_, err := auth.GetArtifactRegistryCredentials(ctx, p, registryHost+"/app", opts...)
		return err
	})
}

func BenchmarkHitGit(b *testing.B) {
	git := auth.WithGitURL(parseURL(b, gitURL))
	benchmarkDerived(b, func(ctx context.Context, p *aws.Provider, opts []auth.Option) error {
		_, err := auth.GetGitCredentials(ctx, p, append(opts[:len(opts):len(opts)], git)...)
		return err
	})
}

func BenchmarkHitCluster(b *testing.B) {
	cluster := auth.WithClusterResource(clusterARN)
	benchmarkDerived(b, func(ctx context.Context, p *aws.Provider, opts []auth.Option) error {
		_, err := auth.GetRESTConfig(ctx, p, append(opts[:len(opts):len(opts)], cluster)...)
		return err
	})
}

func benchmarkDerived(b *testing.B, get func(context.Context, *aws.Provider, []auth.Option) error) {
	tokens, err := cache.NewTokenCache(10)
	if err != nil {
		b.Fatal(err)
	}
	defer tokens.Close()
	w, opts := objectLevelWorld(b)
	w.clusters()
	opts = append(opts, auth.WithCache(tokens, object("tenant-a")), auth.WithSTSRegion("eu-central-1"))
	p := &aws.Provider{}
	b.ReportAllocs()
	for b.Loop() {
		if err := get(b.Context(), p, opts); err != nil {
			b.Fatal(err)
		}
	}
}
