package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid"
	"github.com/workloadid/workloadid/registration/relay"
)

const (
	// reloadInterval is how often the relay reads the hub's CA for client
	// certificates.
	reloadInterval = time.Minute
	// shutdownTimeout bounds the wait for running requests. Watches last
	// longer, and their clients open others.
	shutdownTimeout = 10 * time.Second
)

type relayOptions struct {
	address, certFile, keyFile   string
	connections, perAddress      int
	requests                     int
	metricsAddress, probeAddress string
}

func parseRelayFlags(args []string, out io.Writer) (o relayOptions, err error) {
	fs := pflag.NewFlagSet("wid-hub relay", pflag.ContinueOnError)
	fs.SetOutput(out)
	fs.Usage = func() {
		_,
			_ = fmt.Fprintf(out,
			"Forward requests of agents without a route to the hub's API server. Agents join with the relay's address and CA.\n"+
				"wid hub init --relay prints the manifests. Run it on the hub, or elsewhere with KUBECONFIG.\n\nUsage of wid-hub relay:\n%s", fs.FlagUsages())
	}
	fs.StringVar(&o.address, "bind-address", ":8443", "address that agents connect to, with TLS")
	fs.StringVar(&o.certFile, "tls-cert-file", "",
		"file with the serving certificate and its chain, read again when it changes; required")
	fs.StringVar(&o.keyFile, "tls-private-key-file", "", "file with the key of that certificate; required")
	fs.IntVar(&o.connections, "max-connections", 2000,
		"connections at a time. An agent and each of its add-ons have one or two. Beyond it, those without an accepted credential are closed first")
	fs.IntVar(&o.perAddress, "max-connections-per-address", 1500,
		"connections at a time from one remote address, a /64 for IPv6. Clusters behind one NAT address share it: use three for each")
	fs.IntVar(&o.requests, "max-requests", relay.DefaultMaxRequests,
		"requests in flight with client certificates, watches included; one cluster has a tenth. "+
			"Half as many may have tokens. A watch takes about 40 KiB and a connection 70 KiB: raise the memory limit of 512 MiB with these flags")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081",
		"address of /healthz and /readyz; 0 turns them off")
	version := fs.Bool("version", false, "print the version")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	switch {
	case *version:
		_, err := fmt.Fprintln(out, "wid-hub relay version", workloadid.Version())
		return o, cmp.Or(err, pflag.ErrHelp) // there is nothing else to do
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: see wid-hub relay --help", fs.Arg(0))
	case o.certFile == "" || o.keyFile == "":
		return o,
			errors.New("--tls-cert-file and --tls-private-key-file are required: agents verify the relay by this certificate")
	case o.connections < 1 || o.perAddress < 1 || o.requests < 1:
		return o, errors.New("--max-connections, --max-connections-per-address and --max-requests must be at least 1")
	}
	return o, nil
}

// relayServer serves a relay, and another one when the hub's CA for client
// certificates has changed.
type relayServer struct {
	options relayOptions
	hub     *rest.Config
	reader  client.Reader
	log     logr.Logger

	cas     []byte // of the handler; only the one goroutine that loads uses it
	handler atomic.Pointer[http.Handler]
}

func runRelay(ctx context.Context, hub *rest.Config, o relayOptions) error {
	mgr, err := ctrl.NewManager(hub, ctrl.Options{Scheme: clientgoscheme.Scheme, HealthProbeBindAddress: o.probeAddress,
		Metrics: metricsserver.Options{BindAddress: o.metricsAddress}})
	if err != nil {
		return err
	}
	certificate, err := certwatcher.New(o.certFile, o.keyFile)
	if err != nil {
		return fmt.Errorf("--tls-cert-file and --tls-private-key-file: %w", err)
	}
	s := &relayServer{options: o, hub: hub, reader: mgr.GetAPIReader(), log: mgr.GetLogger().WithName("relay")}
	if err := s.load(ctx); err != nil {
		return err
	}
	serve := func(ctx context.Context) error { return s.serve(ctx, certificate) }
	err = errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping),
		mgr.Add(certificate), mgr.Add(manager.RunnableFunc(s.follow)), mgr.Add(manager.RunnableFunc(serve)))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// load reads the hub's CA for client certificates, and replaces the handler if
// it has changed.
func (s *relayServer) load(ctx context.Context) error {
	const namespace, name, key = "kube-system", "extension-apiserver-authentication", "client-ca-file"
	published := &corev1.ConfigMap{}
	if err := s.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, published); err != nil {
		return fmt.Errorf(
			"read the hub's CA for client certificates: %w: the relay's user needs the Role %q in namespace %q, which wid hub init --relay binds",
			err, "extension-apiserver-authentication-reader", namespace)
	}
	cas := []byte(published.Data[key])
	if s.handler.Load() != nil && bytes.Equal(cas, s.cas) {
		return nil
	}
	pool := x509.NewCertPool() // an empty one refuses all certificates
	if !pool.AppendCertsFromPEM(cas) {
		s.log.Info("The hub publishes no CA for client certificates, so the relay serves bearer tokens only.", "configMap",
			namespace+"/"+name, "key", key)
	}
	handler,
		err := relay.New(relay.Options{Hub: s.hub, ClientCAs: pool, MaxRequests: s.options.requests,
		Registerer: metrics.Registry,
		ErrorLog:   slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelError)})
	if err != nil {
		return err
	}
	s.cas = cas
	s.handler.Store(&handler)
	return nil
}

// follow keeps the handler while the CA cannot be read.
func (s *relayServer) follow(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.load(ctx); err != nil && ctx.Err() == nil {
			s.log.Error(err, "The relay goes on with the CA for client certificates that it has.")
		}
	}, reloadInterval)
	return nil
}

// serve returns when ctx has ended and its requests too.
func (s *relayServer) serve(ctx context.Context, certificate *certwatcher.CertWatcher) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.address)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	config := relay.TLSConfig(nil) // the handler verifies certificates, by the CA of the moment
	config.GetCertificate = certificate.GetCertificate
	// no WriteTimeout: it would end watches
	server := &http.Server{TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 30 * time.Second},
		ErrorLog:       slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelDebug), // any client can cause these
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			(*s.handler.Load()).ServeHTTP(w, req)
		})}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(timeout) != nil {
			_ = server.Close() // watches that still run
		}
	}()
	s.log.Info("The relay serves.", "address", listener.Addr().String())
	if err := server.ServeTLS(relay.LimitListener(listener, s.options.connections, s.options.perAddress), "",
		""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}
