package aws_test

import (
	"errors"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

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
