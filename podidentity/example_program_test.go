package podidentity_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/workloadid/workloadid/auth"
	tokencache "github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/proxy"
	"github.com/workloadid/workloadid/podidentity/server"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

// A program has two commands: the sidecar of each pod, and the server with the
// webhook in one manager, with any number of replicas. A
// MutatingWebhookConfiguration points the API server to the webhook.
func Example_program() {
	ctx := ctrl.SetupSignalHandler()
	if len(os.Args) == 2 && os.Args[1] == "sidecar" {
		fmt.Println(sidecar(ctx))
		return
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":8443")
	if err != nil {
		fmt.Println(err)
		return
	}
	https := ctrlwebhook.NewServer(ctrlwebhook.Options{CertDir: "/certs"})
	fmt.Println(provide(ctx, ctrl.GetConfigOrDie(), listener, https, "/certs"))
}

func sidecar(ctx context.Context) error {
	p, err := proxy.New(proxy.Options{
		Server:    "https://pod-identity.iam-system.svc:8443",
		CA:        []byte(os.Getenv("WORKLOADID_SERVER_CA")),
		TokenFile: "/var/run/secrets/iam.aws.k8s.io/token",
		Secret:    os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
	})
	if err != nil {
		return err
	}
	listeners, err := proxy.Listen(ctx, "127.0.0.1:2020")
	if err != nil {
		return err
	}
	go func() { _ = p.Run(ctx) }()
	err = proxy.Serve(ctx, p, listeners)
	return err
}

// audience is the one of the pods' tokens. Only the server accepts it.
const audience = "pod-identity.example.com"

func provide(ctx context.Context, kube *rest.Config, listener net.Listener, https ctrlwebhook.Server,
	certs string) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(certs, "ca.crt"))
	if err != nil {
		return err
	}
	tokens, err := tokencache.NewTokenCache(20_000)
	if err != nil {
		return err
	}
	defer tokens.Close()

	kube.QPS = -1 // one TokenReview for each request
	mgr, err := ctrl.NewManager(kube, ctrl.Options{
		Scheme:        scheme,
		Cache:         cache.Options{DefaultTransform: stripMetadata}, // tenants write it, and nothing here reads it
		WebhookServer: https,
	})
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{
		Client:      mgr.GetClient(),
		Audience:    audience,
		Cluster:     "prod",
		CA:          func() []byte { return ca },
		Cache:       tokens,
		AuthOptions: []auth.Option{auth.WithSTSRegion("eu-central-1")},
		Events:      mgr.GetEventRecorder("pod-identity"),
		Logger:      mgr.GetLogger(),
	})
	if err != nil {
		return err
	}
	err = errors.Join(
		s.SetupWithManager(mgr),
		s.Listen(mgr, listener, filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key")),
		mgr.AddReadyzCheck("server", s.Ready),
	)
	if err != nil {
		return err
	}

	handler, err := webhook.New(webhook.Options{
		Bindings: mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Image:    "registry.example/iam-credentials-pod:v1",
		Server:   "https://pod-identity.iam-system.svc:8443",
		CA:       func() []byte { return ca },
		Audience: audience,
		Logger:   mgr.GetLogger(),
	})
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register("/pods", handler)
	return mgr.Start(ctx)
}

// stripMetadata drops from the cache what tenants write and neither server nor
// webhook reads.
func stripMetadata(cached any) (any, error) {
	if o, err := meta.Accessor(cached); err == nil {
		o.SetAnnotations(nil)
		o.SetLabels(nil)
		o.SetManagedFields(nil)
		o.SetOwnerReferences(nil)
		o.SetFinalizers(nil)
	}
	return cached, nil
}
