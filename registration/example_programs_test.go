package registration_test

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// runHub registers clusters by client certificate until ctx ends. Its
// ServiceAccount is in manifests.HubRBAC.
func runHub(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme)); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Cache: hub.CacheOptions()})
	if err != nil {
		return err
	}
	driver, err := csr.NewHubDriver(csr.HubDriverOptions{
		Client:          mgr.GetClient(),
		Reader:          mgr.GetAPIReader(),
		BootstrapGroups: []string{registration.BootstrapGroup},
	})
	if err != nil {
		return err
	}
	clusters, err := hub.New(hub.Options{
		Client:  mgr.GetClient(),
		Drivers: []registration.HubDriver{driver},
		Default: driver.Name(),
	})
	if err != nil {
		return err
	}
	if err := clusters.SetupWithManager(mgr, 8); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// runAgent joins a cluster until ctx ends. Its ServiceAccount is in
// manifests.AgentRBAC. The Secret bootstrap-hub-kubeconfig holds the address of
// the hub and a bootstrap credential.
func runAgent(ctx context.Context, config *rest.Config, cluster string) error {
	mgr, err := ctrl.NewManager(config, ctrl.Options{})
	if err != nil {
		return err
	}
	// no cache: it would watch all Secrets
	local, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}
	joining, err := agent.New(agent.Options{Cluster: cluster, Local: local, Driver: csr.New(csr.Options{})})
	if err != nil {
		return err
	}
	if err := joining.SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// A hub, and an agent that joins it.
func Example() {
	_, _ = runHub, runAgent
}
