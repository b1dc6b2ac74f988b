package auth_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A controller gets a token for the ServiceAccount that an object names; an
// object of another namespace is refused.
func ExampleGetAccessToken() {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{}) // in production: a cluster, and the manager's client
	if err != nil {
		fmt.Println(err)
		return
	}
	kubeClient := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}})
	tokens, err := cache.NewTokenCache(1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()

	for _, namespace := range []string{"tenant-a", "tenant-b"} {
		accessToken, err := auth.GetAccessToken(context.Background(), &token.Provider{},
			auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "app"}, kubeClient),
			auth.WithCache(tokens, cache.InvolvedObject{Kind: "Kustomization", Namespace: namespace, Name: "apps",
				Operation: cache.OperationReconcile}),
			auth.WithAudiences("vault"),
			auth.WithPolicy(auth.Policy{Audiences: []string{"vault"}}))
		switch {
		case errors.Is(err, auth.ErrDenied):
			fmt.Println(err)
		case err != nil:
			fmt.Println("unexpected:", err)
		default:
			fmt.Println("valid:", accessToken.GetDuration() > 0)
		}
	}
	// Output:
	// valid: true
	// generic: ServiceAccount "tenant-a/app": get access token: denied: it lies in namespace "tenant-a", but Kustomization "apps" that names it lies in "tenant-b"; name a ServiceAccount of the object's own namespace, or have the policy allow it (auth.Policy.AllowCrossNamespace)
}

func ExampleProviderSet() {
	set, err := auth.NewProviderSet(&token.Provider{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = set.Get("gcp")
	fmt.Println(err)
	// Output: misconfigured: there is no provider "gcp"; use one of: generic
}
