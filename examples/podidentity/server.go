package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

// runServer issues credentials until ctx ends.
func (d *demo) runServer(ctx context.Context, kube *rest.Config) error {
	mgr, err := newManager(kube, ctrl.Options{LeaderElection: true, LeaderElectionID: podscenario.ServerAccount,
		LeaderElectionNamespace: podscenario.Namespace, LeaderElectionReleaseOnCancel: true})
	if err != nil {
		return err
	}
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		return err
	}
	defer tokens.Close()
	s,
		err := server.New(server.Options{Client: mgr.GetClient(), Audience: podscenario.Audience,
		Cluster: podscenario.ClusterName, Cache: tokens,
		AuthOptions: append(d.Login(), auth.WithSTSRegion(podscenario.Region)),
		Events:      mgr.GetEventRecorder(podscenario.ServerAccount), Logger: ctrl.Log.WithName("server")})
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", d.Server)
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // the manager has closed it, unless it has not started
	if err := errors.Join(s.SetupWithManager(mgr),
		s.Listen(mgr, listener, filepath.Join(d.Dir, "tls.crt"), filepath.Join(d.Dir, "tls.key"))); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newManager(kube *rest.Config, options ctrl.Options) (ctrl.Manager, error) {
	options.Scheme, options.Metrics = runtime.NewScheme(), metricsserver.Options{BindAddress: "0"}
	if err := errors.Join(clientgoscheme.AddToScheme(options.Scheme), v1alpha1.AddToScheme(options.Scheme)); err != nil {
		return nil, err
	}
	return ctrl.NewManager(kube, options)
}
