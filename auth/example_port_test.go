package auth_test

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
)

// Ported is a call of a controller that used fluxcd/pkg/auth before.
func Ported(ctx context.Context, providers *auth.ProviderSet, provider, serviceAccount string, kube client.Client,
	tokens *cache.TokenCache, object cache.InvolvedObject, settings *auth.Settings) (auth.Token, error) {
	p, err := providers.Get(provider) // was: switch provider, or utils.ProviderByName
	if err != nil {
		return nil, err
	}
	opts := []auth.Option{
		auth.WithSettings(settings),    // was: global feature gate and default ServiceAccounts
		auth.WithClient(kube),          // for a default ServiceAccount
		auth.WithCache(tokens, object), // was: auth.WithCache(*tokens, object)
		auth.WithAudiences("my-vault"), // has to be in the Policy now
		auth.WithPolicy(auth.Policy{Audiences: []string{"my-vault"}}),
	}
	if serviceAccount != "" { // was: WithServiceAccountName and WithServiceAccountNamespace
		opts = append(opts,
			auth.WithServiceAccount(client.ObjectKey{Namespace: object.Namespace, Name: serviceAccount}, kube))
	}
	return auth.GetAccessToken(ctx, p, opts...)
}
