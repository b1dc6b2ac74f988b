package aws_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// An image is pushed to ECR and pulled again, through a registry that demands
// the password.
func TestPushAndPull(t *testing.T) {
	w := newEnvironment(t)
	w.cloud.AWS().SetRegistry(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	tokens := testenv.Cache(t)
	providers, err := auth.NewProviderSet(&aws.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	keychain := auth.NewKeychain(providers, w.options("tenant-a", "app", auth.WithCache(tokens, object("tenant-a")))...)
	image, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, repository := range []string{registryHost + "/team/app:v1", "public.ecr.aws/alias/app:v1"} {
		ref, err := name.ParseReference(repository)
		if err != nil {
			t.Fatal(err)
		}
		opts := []remote.Option{remote.WithTransport(w.cloud.Client().Transport), remote.WithContext(t.Context())}
		var refused *transport.Error
		if err := remote.Write(ref, image, append(opts, remote.WithAuth(authn.Anonymous))...); !errors.As(err, &refused) ||
			refused.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without credentials: %v", repository, err)
		}
		opts = append(opts, remote.WithAuthFromKeychain(keychain))
		if err := remote.Write(ref, image, opts...); err != nil {
			t.Fatalf("%s: %v", repository, err)
		}
		pulled, err := remote.Image(ref, opts...)
		if err != nil {
			t.Fatalf("%s: %v", repository, err)
		}
		want, _ := image.Digest()
		if got, err := pulled.Digest(); err != nil || got != want {
			t.Errorf("%s: pulled %s, %v", repository, got, err)
		}
	}
	if sts, ecr, public := w.cloud.Calls("sts", ""), w.cloud.Calls("ecr", ""), w.cloud.Calls("ecr-public", ""); sts != 1 ||
		ecr != 1 || public != 1 {
		t.Errorf("%d calls of STS, %d of ECR, %d of ECR Public", sts, ecr, public)
	}
}

func TestKeychainKnowsTheHostsOfECR(t *testing.T) {
	w := newEnvironment(t)
	providers, err := auth.NewProviderSet(&aws.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	keychain := auth.NewKeychain(providers, w.options("tenant-a", "app")...)
	for host, want := range map[string]string{
		"public.ecr.aws": "credentials",
		account + ".dkr-ecr-fips.us-east-1.on.aws":                  "credentials",
		account + ".dkr-ecr-fips.us-gov-west-1.on.aws":              "credentials",
		account + ".dkr-ecr.cn-north-1.on.amazonwebservices.com.cn": "credentials",
		account + ".dkr-ecr-next.us-east-1.on.aws":                  "error",
		account + ".dkr.ecr.us-east-1.amazonaws.com.cn":             "error",
		"12345.dkr.ecr.us-east-1.amazonaws.com":                     "error",
		"ghcr.io":                                                   "anonymous",
	} {
		t.Run(host, func(t *testing.T) {
			target, err := name.NewRegistry(host)
			if err != nil {
				t.Fatal(err)
			}
			got := "credentials"
			switch a, err := keychain.Resolve(target); {
			case err != nil && errors.Is(err, auth.ErrMisconfigured):
				testenv.CheckError(t, err, auth.ErrMisconfigured, "not a registry of Amazon ECR", host)
				got = "error"
			case err != nil:
				got = err.Error()
			case a == authn.Anonymous:
				got = "anonymous"
			}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
