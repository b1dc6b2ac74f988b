package auth_test

import (
	"context"
	"net/url"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
)

// Sources is what a GitOps controller does for a tenant. providers holds
// aws.Provider, azure.Provider and so on; opts are auth.WithServiceAccount and
// auth.WithCache, as above.
func Sources(ctx context.Context, providers *auth.ProviderSet, kube client.Client, namespace string,
	opts ...auth.Option) error {
	// An artifact: the registry's host picks the provider, and all other
	// registries get nothing.
	image, err := name.ParseReference("123456789012.dkr.ecr.eu-central-1.amazonaws.com/app:v1")
	if err != nil {
		return err
	}
	keychain := auth.NewKeychain(providers, opts...)
	if _, err := remote.Image(image, remote.WithAuthFromKeychain(keychain), remote.WithContext(ctx)); err != nil {
		return err
	}

	// A Git repository.
	azure, err := providers.Get("azure")
	if err != nil {
		return err
	}
	repository := url.URL{Scheme: "https", Host: "dev.azure.com", Path: "/organization/project/_git/repository"}
	if _, err := auth.GetGitCredentials(ctx, azure, append(opts, auth.WithGitURL(repository))...); err != nil {
		return err
	}

	// A remote cluster that a ConfigMap names; the rest.Config renews its
	// credential for as long as it is used.
	config, err := auth.GetClusterConfigFromConfigMap(ctx, providers,
		client.ObjectKey{Namespace: namespace, Name: "production"}, kube, opts...)
	if err != nil {
		return err
	}
	_, err = client.New(config, client.Options{})
	return err
}
