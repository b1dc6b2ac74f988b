package main

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	name = "registration-hub"
	// namespace is that of registration.HubManifest. It holds the Lease of the leader.
	namespace = "open-cluster-management-hub"
	// bootstrapUser is the ServiceAccount of registration.BootstrapManifest.
	bootstrapUser = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"
	// workers is how many clusters are reconciled at a time.
	workers = 8
)

type options struct {
	auth                                              []authType
	defaultAuth                                       string
	bootstrapUsers, bootstrapGroups, autoApproveUsers []string
	leaderElect, demo                                 bool
	metricsAddress, probeAddress                      string
}

// authType makes a driver.
type authType struct {
	name string
	make func(ctrl.Manager, options) (registration.HubDriver, error)
}

func (a authType) Name() string { return a.name }

// authTypes are those that --registration-auth knows. Add your own drivers here.
func authTypes() []authType {
	return []authType{{registration.AuthTypeCSR, newCSR}}
}

func newCSR(mgr ctrl.Manager, o options) (registration.HubDriver, error) {
	return csr.NewHub(csr.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(name),
		BootstrapUsers: o.bootstrapUsers, BootstrapGroups: o.bootstrapGroups, AutoApproveUsers: o.autoApproveUsers})
}

// runHub runs until ctx ends, then lets running reconciles finish and gives up the Lease.
func runHub(ctx context.Context, config *rest.Config, o options) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true, // the program exits when Start returns
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.probeAddress,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	drivers := make([]registration.HubDriver, len(o.auth))
	for i, a := range o.auth {
		if drivers[i], err = a.make(mgr, o); err != nil {
			return err
		}
	}
	hub, err := registration.NewHub(registration.HubOptions{Client: mgr.GetClient(), Drivers: drivers, Default: o.defaultAuth,
		Recorder: mgr.GetEventRecorder(name), Registerer: metrics.Registry})
	if err != nil {
		return err
	}
	if err := hub.SetupWithManager(mgr, workers); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme))
}
