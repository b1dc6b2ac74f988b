package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

const (
	name = "iam-credentials-provider"
	// namespace is the namespace of the manifests.
	namespace = "iam-system"
)

// common are the options of both commands.
type common struct {
	audience, listen, certs      string
	serverCA                     string
	metricsAddress, probeAddress string
	registerer                   prometheus.Registerer
}

type serverOptions struct {
	common
	cluster, region, leaderElectNamespace string
	pods, connections                     int
	leaderElect                           bool
	auth                                  []auth.Option // in tests, the login
}

// runServer runs until ctx ends, then lets requests finish and gives up the
// Lease.
func runServer(ctx context.Context, kube *rest.Config, o serverOptions) error {
	mgr, err := newManager(kube, o.common, ctrl.Options{
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       o.leaderElectNamespace,
		LeaderElectionReleaseOnCancel: true, // the program exits when Start returns
	})
	if err != nil {
		return err
	}
	tokens, series, err := o.newCache()
	if err != nil {
		return err
	}
	defer tokens.Close()
	if o.region != "" {
		o.auth = append(o.auth, auth.WithSTSRegion(o.region))
	}
	s,
		err := server.New(server.Options{Client: mgr.GetClient(), Audience: o.audience, Cluster: o.cluster, Cache: tokens,
		AuthOptions: o.auth,
		Events:      mgr.GetEventRecorder(name), Logger: ctrl.Log.WithName("server"), Registerer: o.registerer,
		Series: series,
		CA:     o.readCA, MaxConnections: o.connections})
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close() //nolint:errcheck // the manager has closed it, unless it has not started
	certificate, key := filepath.Join(o.certs, "tls.crt"), filepath.Join(o.certs, "tls.key")
	err = errors.Join(s.SetupWithManager(mgr), s.Listen(mgr, listener, certificate, key),
		mgr.AddReadyzCheck("server", s.Ready))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newCache has room for the server's own credentials too.
func (o *serverOptions) newCache() (*cache.TokenCache, *metrics.Metrics, error) {
	observer, err := metrics.New("podidentity_", o.registerer)
	if err != nil {
		return nil, nil, err
	}
	tokens, err := cache.NewTokenCache(o.pods+1, cache.WithObserver(observer))
	return tokens, observer, err
}

// readCA reads the file for each pod and each answer, since CAs rotate. Without
// a file the webhook refuses pods, and the server hands out no CAs.
func (c *common) readCA() []byte {
	pem, err := os.ReadFile(c.serverCA)
	if err != nil && c.serverCA != "" {
		ctrl.Log.WithName("ca").Error(err, "read the CA of the server")
	}
	return pem
}

func newManager(kube *rest.Config, o common, options ctrl.Options) (ctrl.Manager, error) {
	if err := server.CheckAPIServer(kube); err != nil {
		return nil, err
	}
	kube = rest.CopyConfig(kube)
	kube.QPS = -1 // one TokenReview for each request: the API server limits itself
	var err error
	if options.Scheme, err = newScheme(); err != nil {
		return nil, err
	}
	if options.Cache.DefaultTransform == nil {
		options.Cache.DefaultTransform = strip
	}
	options.Metrics = metricsserver.Options{BindAddress: o.metricsAddress}
	options.HealthProbeBindAddress = o.probeAddress
	mgr, err := ctrl.NewManager(kube, options)
	if err != nil {
		return nil, err
	}
	return mgr, mgr.AddHealthzCheck("ping", healthz.Ping)
}

// strip drops the metadata that the program does not read from objects in the
// cache. Tenants write up to 1.5 MB of it in each IAMBinding.
func strip(cached any) (any, error) {
	if o, err := meta.Accessor(cached); err == nil {
		o.SetGenerateName("")
		o.SetAnnotations(nil)
		o.SetLabels(nil)
		o.SetManagedFields(nil)
		o.SetOwnerReferences(nil)
		o.SetFinalizers(nil)
	}
	return cached, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}
