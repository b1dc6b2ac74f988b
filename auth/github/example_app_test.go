package github_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/github"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A controller grants each namespace of tenants an installation of its App. A
// namespace without a grant gets nothing.
func Example() {
	ctx := context.Background()
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{}) // the cluster of this example
	if err != nil {
		fmt.Println(err)
		return
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		fmt.Println(err)
		return
	}
	simulated := cloudtest.NewGitHub(cloud, "github.com")
	simulated.AddApp("Iv23liExample", &key.PublicKey)
	simulated.SetInstallation(42, cloudtest.GitHubInstallation{App: "Iv23liExample", Owner: "org-a",
		Repositories: []string{"app", "infra"}, Permissions: map[string]string{"contents": "write"}})

	grants := map[string]github.Grant{
		"tenant-a": {Installation: 42, Repositories: []string{"app"}, Permissions: map[string]string{"contents": "read"}},
	}
	provider := &github.Provider{ // one for each App and cluster
		AppID: "Iv23liExample",
		Sign:  github.SignWith(key),
		Grant: func(sa *corev1.ServiceAccount) (github.Grant, error) { return grants[sa.Namespace], nil },
	}
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		kube := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "app"}})
		accessToken, err := auth.GetAccessToken(ctx, provider,
			auth.WithServiceAccount(client.ObjectKey{Namespace: tenant, Name: "app"}, kube),
			auth.WithCache(tokens, cache.InvolvedObject{Kind: "GitRepository", Namespace: tenant, Name: "app"}),
			auth.WithHTTPClient(cloud.Client()))
		if err != nil {
			fmt.Println(err)
			continue
		}
		own, err := github.FromToken(accessToken)
		if err != nil {
			fmt.Println(err)
			return
		}
		identity, ok := simulated.Identity(own.Reveal())
		fmt.Println(ok, identity.Repositories)
	}
	// Output:
	// true [org-a/app]
	// github: ServiceAccount "tenant-b/app": get access token: denied: the controller grants this ServiceAccount nothing at GitHub; name its installation, repositories and permissions in the controller (github.Provider.Grant)
}
