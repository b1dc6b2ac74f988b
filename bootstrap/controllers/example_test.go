package controllers_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/controllers"
)

// A cluster publishes cluster-info and signs it with a token. Later the token
// expires: its Secret and its signature go.
func Example() {
	ctx := context.Background()
	kube := fake.NewClientBuilder().Build() // a program takes its manager's client
	server := httptest.NewTLSServer(nil)    // only its certificate is used
	defer server.Close()
	info := &bootstrap.ClusterInfo{Server: "https://10.0.0.1:6443",
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	if err := controllers.Publish(ctx, kube, info); err != nil {
		fmt.Println(err)
		return
	}
	token, err := bootstrap.ParseToken("abcdef.0123456789abcdef")
	if err != nil {
		fmt.Println(err)
		return
	}
	config := bootstrap.TokenConfig{Token: token, Expires: time.Now().Add(time.Hour),
		Usages: []string{bootstrap.UsageSigning}}
	secret, err := config.Secret()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := kube.Create(ctx, secret); err != nil {
		fmt.Println(err)
		return
	}

	// In a manager their SetupWithManager makes them run: see the example of
	// ByObject.
	signer, cleaner := &controllers.Signer{Client: kube}, &controllers.Cleaner{Client: kube}
	clusterInfo := types.NamespacedName{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}
	reconcile := func() {
		if _, err := cleaner.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret)}); err != nil {
			fmt.Println(err)
			return
		}
		if _, err := signer.Reconcile(ctx, ctrl.Request{NamespacedName: clusterInfo}); err != nil {
			fmt.Println(err)
			return
		}
		var published corev1.ConfigMap
		fmt.Println(kube.Get(ctx, clusterInfo, &published), slices.Sorted(maps.Keys(published.Data)))
	}
	reconcile()

	config.Expires = time.Now().Add(-time.Minute)
	expired, err := config.Secret()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := kube.Update(ctx, expired); err != nil {
		fmt.Println(err)
		return
	}
	reconcile()
	// Output:
	// <nil> [jws-kubeconfig-abcdef kubeconfig]
	// <nil> [kubeconfig]
}

// A program runs both controllers in a manager that reads two namespaces only.
func ExampleByObject() {
	options := ctrl.Options{Cache: cache.Options{ByObject: controllers.ByObject()}}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options)
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder := mgr.GetEventRecorder("bootstrap")
	err = errors.Join(
		(&controllers.Signer{Client: mgr.GetClient(), Events: recorder}).SetupWithManager(mgr),
		(&controllers.Cleaner{Client: mgr.GetClient(), Events: recorder}).SetupWithManager(mgr),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mgr.Start(ctrl.SetupSignalHandler()))
}
