// Command approve is the approve button of a hub's operator, with a policy of
// its own: it lets the clusters of an inventory join.
//
//	go run ./examples/approve shop-eu shop-us
//
// Copy approve.go, and change decide. The operator needs the rights to list
// certificatesigningrequests, to update their approval and to approve for the
// signer kubernetes.io/kube-apiserver-client, to get clusterroles, to get and
// patch managedclusters, and to update managedclusters/accept.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/workloadid/workloadid/registration/ocm"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "approve:", err)
		os.Exit(1)
	}
}

// run uses the current context of the kubeconfig, which is that of the hub.
func run(ctx context.Context, inventory []string) error {
	scheme := runtime.NewScheme()
	err := errors.Join(certificatesv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), ocm.AddToScheme(scheme))
	if err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	hub, err := client.New(cfg, client.Options{Scheme: scheme}) // no cache, so that it reads what is there
	if err != nil {
		return err
	}
	return approve(ctx, hub, inventory, os.Stdout)
}
