package token_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A controller gets a token of a tenant's ServiceAccount for Vault, and then
// the credentials of a registry that trusts the issuer.
func Example() {
	ctx := context.Background()
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{}) // the cluster of this example
	if err != nil {
		fmt.Println(err)
		return
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "deployer"}}
	kubeClient := issuer.Client(sa)
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()
	provider := &token.Provider{Registries: []token.Registry{{Host: "registry.example.com"}}}
	object := cache.InvolvedObject{Kind: "Deployment", Namespace: "tenant-a", Name: "app"}
	opts := []auth.Option{
		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "deployer"}, kubeClient),
		auth.WithCache(tokens, object),
	}

	accessToken, err := auth.GetAccessToken(ctx, provider, append(opts,
		auth.WithAudiences("vault"), auth.WithPolicy(auth.Policy{Audiences: []string{"vault"}}))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	jwt, err := token.Reveal(accessToken)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(issuer.Verify(jwt, "vault")) // as Vault does

	credentials, err := auth.GetArtifactRegistryCredentials(ctx, provider, "registry.example.com/team/app", opts...)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("for the registry:", credentials.GetDuration() > 0)
	// Output:
	// tenant-a/deployer <nil>
	// for the registry: true
}
