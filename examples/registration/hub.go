package main

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// hubName names the hub in Events and its Lease.
const hubName = "registration-hub"

// runHub accepts clusters by one driver, and lets add-ons have tokens, until ctx ends.
func runHub(ctx context.Context, config *rest.Config, newDriver func(ctrl.Manager) (registration.HubDriver, error), addOns bool) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: hubName, LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true})
	if err != nil {
		return err
	}
	driver, err := newDriver(mgr)
	if err != nil {
		return err
	}
	clusters, err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: []registration.HubDriver{driver},
		Default: driver.Name(), Recorder: mgr.GetEventRecorder(hubName)})
	if err != nil {
		return err
	}
	if err := clusters.SetupWithManager(mgr, 1); err != nil {
		return err
	}
	if addOns {
		if err := setUpTokens(mgr); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// newCSR makes the driver of clusters with a client certificate.
func newCSR(mgr ctrl.Manager) (registration.HubDriver, error) {
	return csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(hubName),
		BootstrapGroups: []string{registration.BootstrapGroup}})
}

func setUpTokens(mgr ctrl.Manager) error {
	tokens, err := token.NewHub(token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(hubName)})
	if err != nil {
		return err
	}
	return tokens.SetupWithManager(mgr, 1)
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme), addon.AddToScheme(scheme))
}
