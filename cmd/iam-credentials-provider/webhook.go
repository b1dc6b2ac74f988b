package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/auth/podidentity/webhook"
)

// webhookPath is that of the MutatingWebhookConfiguration.
const webhookPath = "/pods"

type webhookOptions struct {
	common
	image, server, serverCA string
	port                    int
}

// runWebhook runs until ctx ends, then lets requests finish.
func runWebhook(ctx context.Context, kube *rest.Config, o webhookOptions) error {
	host, text, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("--listen: port %q: use a number", text)
	}
	https := ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port, CertDir: o.certs, TLSOpts: []func(*tls.Config){oneRequestAConnection}})
	mgr, err := newManager(kube, o.common, ctrl.Options{WebhookServer: https})
	if err != nil {
		return err
	}
	handler, err := webhook.New(webhook.Options{Bindings: mgr.GetClient(), Live: mgr.GetAPIReader(), Image: o.image, Server: o.server, CA: o.readCA,
		Audience: o.audience, Port: o.port, Logger: ctrl.Log.WithName("webhook"), Registerer: o.registerer})
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register(webhookPath, handler) // which also adds the server to the manager
	// The informer starts with the manager instead of with the first pod.
	if _, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.IAMBinding{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddReadyzCheck("https", https.StartedChecker()), mgr.AddReadyzCheck("bindings", canList(mgr.GetClient()))); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// oneRequestAConnection turns HTTP/2 off. The webhook bounds the memory of each connection.
func oneRequestAConnection(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }

// readCA reads the file for each pod, since CAs rotate. Without a file the webhook refuses pods.
func (o *webhookOptions) readCA() []byte {
	pem, err := os.ReadFile(o.serverCA)
	if err != nil {
		ctrl.Log.WithName("webhook").Error(err, "read the CA of the server")
	}
	return pem
}

// canList checks that the informer has synced.
func canList(bindings client.Reader) healthz.Checker {
	const patience = 5 * time.Second
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		return bindings.List(ctx, &v1alpha1.IAMBindingList{}, client.Limit(1))
	}
}
