package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/workloadid/workloadid/internal/apiserver"
	"github.com/workloadid/workloadid/internal/connlimit"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// CheckAPIServer refuses an API server that another host on the network could
// impersonate: its certificate is not verified, or it speaks http beyond this
// machine. [Server.SetupWithManager] calls it. A program that takes only CAs or
// bindings from the API server calls it too.
func CheckAPIServer(config *rest.Config) error { return apiserver.CheckVerified(config) }

// SetupWithManager adds the handler's index of bindings, and the controller
// that writes their status on the leader.
func (s *Server) SetupWithManager(mgr ctrl.Manager) error {
	if err := CheckAPIServer(mgr.GetConfig()); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.IAMBinding{}, serviceAccountIndex,
		indexServiceAccount); err != nil {
		return fmt.Errorf("index IAMBindings: %w", err)
	}
	return errors.Join(s.forgetDeleted(mgr), (&statusWriter{Server: s}).setup(mgr))
}

// Labels of the cache's metrics.
const (
	seriesKind      = "IAMBinding"
	seriesOperation = "credentials"
)

// forgetDeleted removes the series of deleted bindings on every replica,
// because every replica serves pods.
func (s *Server) forgetDeleted(mgr ctrl.Manager) error {
	if s.options.Series == nil {
		return nil
	}
	informer, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.IAMBinding{},
		ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch IAMBindings: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: s.forget})
	return err
}

func (s *Server) forget(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if b, ok := o.(*v1alpha1.IAMBinding); ok {
		s.options.Series.DeleteEventsForObject(seriesKind, b.Name, b.Namespace, seriesOperation)
	}
}

// forgetLate removes the series that an exchange has recreated after the
// deletion of its binding.
func (s *Server) forgetLate(ctx context.Context, b *v1alpha1.IAMBinding) {
	err := s.options.Client.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(b), &v1alpha1.IAMBinding{})
	if s.options.Series != nil && apierrors.IsNotFound(err) {
		s.forget(b)
	}
}

// Limits of connections. A request is a few kilobytes of headers.
const (
	headerTimeout   = 5 * time.Second // also for a body, which is refused
	writeTimeout    = requestTimeout + 5*time.Second
	idleTimeout     = 3 * time.Second // sidecars keep no connection
	maxHeaderBytes  = maxToken        // net/http adds 4 KiB
	shutdownTimeout = requestTimeout
)

// Listen serves HTTPS on a listener while the manager runs, on every replica.
// New connections use the current certificate and key on disk. If these cannot
// be loaded, Listen logs the error and keeps the previous pair. The manager
// closes the listener.
//
// Beyond [Options.MaxConnections], Listen closes connections without a valid
// token first. It picks the address with the most of them, and closes that
// address's oldest one. So no address locks out another. An IPv6 address counts
// as its /64, and its /48 counts too.
func (s *Server) Listen(mgr ctrl.Manager, listener net.Listener, certFile, keyFile string) error {
	watcher, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("load the certificate of the server from %q and %q: %w", certFile, keyFile, err)
	}
	watcher.RegisterCallback(func(c tls.Certificate) { s.metrics.expiry.Set(float64(c.Leaf.NotAfter.Unix())) })
	if err := mgr.Add(watcher); err != nil {
		return err
	}
	bounded := &connlimit.Listener{Listener: listener, Max: s.options.MaxConnections,
		Changed: func(open int) { s.metrics.connections.Set(float64(open)) }, Evicted: s.metrics.evicted.Inc}
	timeout := shutdownTimeout
	return mgr.Add(&manager.Server{
		Name: "podidentity",
		Server: &http.Server{
			Handler:           s,
			ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
			MaxHeaderBytes: maxHeaderBytes, ErrorLog: newErrorLog(),
		},
		Listener: tls.NewListener(bounded,
			&tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate}),
		ShutdownTimeout: &timeout,
	})
}
