// Command controller is a controller to copy: for each ConfigMap with the label
// workloadid.example/identity it gets AWS credentials of the ServiceAccount
// that the ConfigMap names, and writes the identity that AWS sees into it.
//
//	kubectl apply -k config/controller
//	go run ./examples/controller --metrics-bind-address 0
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid"
	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	logTo(os.Stderr)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

// logTo sends the logs of controller-runtime and client-go to a writer, as
// text.
func logTo(log io.Writer) {
	logger := logr.FromSlogHandler(slog.NewTextHandler(log, nil))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}

type options struct {
	settings       auth.Settings
	metricsAddress string
	probeAddress   string
	leaderElect    bool
	namespace      string // of the Lease; empty: the pod's own
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("%w: run the controller in a cluster, or set KUBECONFIG", err)
	}
	if config.Proxy == nil { // HTTPS_PROXY is for services outside the cluster
		config.Proxy = http.ProxyURL(nil)
	}
	return start(ctx, config, o, &Reconciler{AWS: &aws.Provider{}})
}

func parseFlags(args []string, out io.Writer) (*options, error) {
	const tokens = 10_000 // one for each tenant, region and kind of credential
	o := &options{settings: auth.Settings{ObjectLevelWorkloadIdentity: true, TokenCache: cache.Flags{MaxSize: tokens}}}
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	fs.SetOutput(out)
	o.settings.BindFlags(fs)
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	version := fs.Bool("version", false, "print the version")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081",
		"address of /healthz and /readyz; 0 turns them off")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "elect a leader among several replicas")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if *version {
		_, err := fmt.Fprintln(out, "controller version", workloadid.Version())
		return nil, cmp.Or(err, pflag.ErrHelp) // there is nothing else to do
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: see --help", fs.Arg(0))
	}
	return o, o.settings.Validate()
}

// start runs the reconciler until ctx ends.
func start(ctx context.Context, config *rest.Config, o *options, r *Reconciler) error {
	mgr, err := newManager(config, o)
	if err != nil {
		return err
	}
	observer, err := metrics.New("gotk_token_", ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	o.settings.TokenCache.Log(ctrl.Log)
	if r.Tokens, err = o.settings.TokenCache.New(cache.WithObserver(observer)); err != nil {
		return err
	}
	defer r.Tokens.Close()
	r.Client, r.Metrics, r.Events = mgr.GetClient(), observer, mgr.GetEventRecorder("workloadid-example")
	r.Options = append(r.Options, auth.WithSettings(&o.settings))
	if err := r.SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newManager(config *rest.Config, o *options) (ctrl.Manager, error) {
	labelled, err := labels.Parse(label)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.probeAddress,
		LeaderElection:         o.leaderElect,
		LeaderElectionID:       "controller.workloadid.example",

		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // the program exits when Start returns
		Cache:                         cacheOptions(labelled),
		// A service that hangs holds one of several workers, and only for a
		// while.
		Controller: ctrlconfig.Controller{MaxConcurrentReconciles: 10, ReconciliationTimeout: 30 * time.Second},
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("ping", healthz.Ping)
}

// cacheOptions lets the manager keep only what Reconcile and auth read.
func cacheOptions(labelled labels.Selector) ctrlcache.Options {
	return ctrlcache.Options{ByObject: map[client.Object]ctrlcache.ByObject{
		&corev1.ConfigMap{}: {Label: labelled, Transform: stripConfigMap},
		&corev1.ServiceAccount{}: {
			Transform:             auth.ServiceAccountTransform(&aws.Provider{}),
			UnsafeDisableDeepCopy: new(true), // nothing writes to one
		},
	}}
}
