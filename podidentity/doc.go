// Package podidentity explains pod identity (KEP-14): pods get the AWS credentials of an IAM role on any Kubernetes cluster, with an
// unmodified AWS SDK. KEP-14 is for AWS alone. Function provide runs the server and the webhook in one manager, with any number of replicas:
//
//	import (
//		"context"
//		"errors"
//		"net"
//		"os"
//		"path/filepath"
//
//		"k8s.io/apimachinery/pkg/api/meta"
//		"k8s.io/apimachinery/pkg/runtime"
//		clientgoscheme "k8s.io/client-go/kubernetes/scheme"
//		"k8s.io/client-go/rest"
//		ctrl "sigs.k8s.io/controller-runtime"
//		"sigs.k8s.io/controller-runtime/pkg/cache"
//		ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
//
//		"github.com/workloadid/workloadid/auth"
//		"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
//		"github.com/workloadid/workloadid/podidentity/server"
//		"github.com/workloadid/workloadid/podidentity/webhook"
//		tokencache "github.com/workloadid/workloadid/cache"
//	)
//
//	// audience is the one of the pods' tokens. Only the server accepts it.
//	const audience = "pod-identity.example.com"
//
//	func provide(ctx context.Context, kube *rest.Config, listener net.Listener, https ctrlwebhook.Server, certs string) error {
//		scheme := runtime.NewScheme()
//		if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
//			return err
//		}
//		ca, err := os.ReadFile(filepath.Join(certs, "ca.crt"))
//		if err != nil {
//			return err
//		}
//		tokens, err := tokencache.NewTokenCache(20_000)
//		if err != nil {
//			return err
//		}
//		defer tokens.Close()
//
//		kube.QPS = -1 // one TokenReview for each request
//		mgr, err := ctrl.NewManager(kube, ctrl.Options{
//			Scheme:        scheme,
//			Cache:         cache.Options{DefaultTransform: stripMetadata}, // tenants write it, and nothing here reads it
//			WebhookServer: https,
//		})
//		if err != nil {
//			return err
//		}
//		s, err := server.New(server.Options{
//			Client:      mgr.GetClient(),
//			Audience:    audience,
//			Cluster:     "prod",
//			CA:          func() []byte { return ca },
//			Cache:       tokens,
//			AuthOptions: []auth.Option{auth.WithSTSRegion("eu-central-1")},
//			Events:      mgr.GetEventRecorder("pod-identity"),
//			Logger:      mgr.GetLogger(),
//		})
//		if err != nil {
//			return err
//		}
//		err = errors.Join(
//			s.SetupWithManager(mgr),
//			s.Listen(mgr, listener, filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key")),
//			mgr.AddReadyzCheck("server", s.Ready),
//		)
//		if err != nil {
//			return err
//		}
//
//		handler, err := webhook.New(webhook.Options{
//			Bindings: mgr.GetClient(),
//			Live:     mgr.GetAPIReader(),
//			Image:    "registry.example/iam-credentials-pod:v1",
//			Server:   "https://pod-identity.iam-system.svc:8443",
//			CA:       func() []byte { return ca },
//			Audience: audience,
//			Logger:   mgr.GetLogger(),
//		})
//		if err != nil {
//			return err
//		}
//		mgr.GetWebhookServer().Register("/pods", handler)
//		return mgr.Start(ctx)
//	}
//
//	// stripMetadata drops from the cache what tenants write and neither server nor webhook reads.
//	func stripMetadata(cached any) (any, error) {
//		if o, err := meta.Accessor(cached); err == nil {
//			o.SetAnnotations(nil)
//			o.SetLabels(nil)
//			o.SetManagedFields(nil)
//			o.SetOwnerReferences(nil)
//			o.SetFinalizers(nil)
//		}
//		return cached, nil
//	}
//
// A MutatingWebhookConfiguration points the API server to the webhook. The example of this package has the whole program. docs/podidentity.md shows an installation with manifests.
//
// # Parts
//
// This package has no code; its parts are four packages:
//
//   - api/v1alpha1 has IAMBinding, which binds a ServiceAccount to a role, and IAMRoleAllowList, which lists the roles that each namespace
//     may use.
//   - webhook adds a sidecar and a token to each new pod whose ServiceAccount has an IAMBinding.
//   - proxy is that sidecar. It fetches credentials, keeps them in memory and answers the SDK on the pod's loopback.
//   - server attests the pod by its token, assumes the role of the IAMBinding, and returns the credentials.
//
// The parts at work:
//
//	new pod ──▶ API server ──▶ webhook
//
//	pod                                     server               AWS
//	SDK ──▶ proxy ── token of the pod ────▶ TokenReview
//	                                        IAMBinding
//	                                        IAMRoleAllowList
//	        ◀─────── credentials ────────── AssumeRole ────────▶ STS
//
// # Objects
//
// Install the CustomResourceDefinitions and the admission policies of package v1alpha1. The administrator then allows roles, and a team
// binds one of them to a ServiceAccount:
//
//	allowed := &v1alpha1.IAMRoleAllowList{
//		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName},
//		Spec: v1alpha1.IAMRoleAllowListSpec{Rules: []v1alpha1.AllowRule{{
//			Namespaces: []string{"team-a"},
//			Roles:      []string{"arn:aws:iam::123456789012:role/team-a/*"},
//		}}},
//	}
//	binding := &v1alpha1.IAMBinding{
//		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"},
//		Spec: v1alpha1.IAMBindingSpec{
//			AWS:               v1alpha1.AWSRole{RoleARN: "arn:aws:iam::123456789012:role/team-a/reporting"},
//			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "reporting"},
//		},
//	}
//
// The role has to trust the server for that ServiceAccount, with this trust policy:
//
//	policy, err := server.TrustPolicy("prod", "arn:aws:iam::123456789012:role/pod-identity", binding)
//
// # In the pod
//
// The webhook gives the sidecar the CA of the server, the pod's token and a secret, which the SDK sends with each request:
//
//	p, err := proxy.New(proxy.Options{
//		Server:    "https://pod-identity.iam-system.svc:8443",
//		CA:        []byte(os.Getenv("WORKLOADID_SERVER_CA")),
//		TokenFile: "/var/run/secrets/iam.aws.k8s.io/token",
//		Secret:    os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
//	})
//	listeners, err := proxy.Listen(ctx, "127.0.0.1:2020")
//	go func() { _ = p.Run(ctx) }()
//	err = proxy.Serve(ctx, p, listeners)
package podidentity
