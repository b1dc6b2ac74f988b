package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

// runWebhook injects the sidecar into pods until ctx ends.
func (d *demo) runWebhook(ctx context.Context, kube *rest.Config) error {
	host, port, err := splitAddress(d.Webhook)
	if err != nil {
		return err
	}
	_, sidecarPort, err := splitAddress(d.Sidecar)
	if err != nil {
		return err
	}
	mgr, err := newManager(kube,
		ctrl.Options{WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: host, Port: port, CertDir: d.Dir})})
	if err != nil {
		return err
	}
	handler,
		err := webhook.New(webhook.Options{Bindings: mgr.GetClient(), Live: mgr.GetAPIReader(), Image: podscenario.Image,
		Server: d.ServerURL(),
		CA:     d.readCA, Audience: podscenario.Audience, Port: sidecarPort, Logger: ctrl.Log.WithName("webhook")})
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register("/pods", handler) // which also adds the server to the manager
	mgr.GetWebhookServer().Register(webhook.BindingsPath, handler)
	return mgr.Start(ctx)
}

// readCA reads the CA of the server for each pod, since CAs rotate. Without it
// the webhook refuses pods.
func (d *demo) readCA() []byte {
	pem, err := os.ReadFile(filepath.Join(d.Dir, "ca.crt"))
	if err != nil {
		ctrl.Log.WithName("webhook").Error(err, "read the CA of the server")
	}
	return pem
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}
