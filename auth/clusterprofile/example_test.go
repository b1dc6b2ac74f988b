package clusterprofile_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/clusterprofile"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// A controller reaches the cluster of a ClusterProfile as the tenant's
// ServiceAccount. With the generic provider that cluster trusts the issuer of
// this one; with aws.Provider it is a cluster of EKS.
func Example() {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{}) // the cluster of this example
	if err != nil {
		fmt.Println(err)
		return
	}
	kube := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "deployer"}})
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()

	// In a program: access.Cluster for the entry of
	// profile.Status.AccessProviders with the name of the provider.
	cluster := &clientcmdv1.Cluster{Server: "https://spoke.example:6443", CertificateAuthorityData: cloud.CA()}
	config, err := clusterprofile.GetConfig(context.Background(), &token.Provider{}, cluster,
		auth.WithServiceAccount(client.ObjectKey{Namespace: "tenant-a", Name: "deployer"}, kube),
		auth.WithCache(tokens, cache.InvolvedObject{Kind: "ClusterProfile", Namespace: "tenant-a", Name: "spoke"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.Host)
	// Output: https://spoke.example:6443
}
