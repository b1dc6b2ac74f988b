package clientgo_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/clientgo"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A controller passes its clientset to auth.
func Example() {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{}) // the cluster of this example
	if err != nil {
		fmt.Println(err)
		return
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}
	clientset := fake.NewClientset(sa)
	issuer.PrependTo(clientset)
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()

	kube := clientgo.New(clientset)
	object := cache.InvolvedObject{Kind: "Report", Namespace: "tenant-a", Name: "weekly"}
	accessToken, err := auth.GetAccessToken(context.Background(), &token.Provider{},
		auth.WithServiceAccount(types.NamespacedName{Namespace: "tenant-a", Name: "app"}, kube),
		auth.WithCache(tokens, object),
		auth.WithAudiences("vault"),
		auth.WithPolicy(auth.Policy{Audiences: []string{"vault"}}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("valid:", accessToken.GetDuration() > 0)
	// Output: valid: true
}
