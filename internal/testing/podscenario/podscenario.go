// Package podscenario has what tests of pod identity share. An Environment is an
// API server with the kinds, for the packages. A Scenario plays how a pod gets
// AWS credentials and loses them, on a real API server and with a simulated
// AWS. The program iam-credentials-provider is tested in it, and
// examples/podidentity shows it.
package podscenario

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/scenario"
)

// Namespace holds server and webhook, which run as these ServiceAccounts.
const (
	Namespace      = "iam-system"
	ServerAccount  = "iam-credentials-provider"
	WebhookAccount = "iam-credentials-webhook"
)

// CertificatesAccount is the ServiceAccount of the program that makes their
// certificates. The scenario does not run it.
const CertificatesAccount = "iam-credentials-certificates"

// Settings of the server and the webhook.
const (
	ClusterName = "demo"
	Audience    = ServerAccount + "." + Namespace + ".svc"
	Region      = "eu-central-1"
	Image       = "registry.example/iam-credentials-pod:v1"
)

// Tenant is the namespace of the pod.
const Tenant = "team-a"

// Scenario has a control plane, a simulated AWS, and a pod. Its steps print
// what they do.
type Scenario struct {
	scenario.Scenario
	// RunServer and RunWebhook run with the rights of their ServiceAccounts
	// until ctx ends.
	RunServer, RunWebhook func(ctx context.Context, kube *rest.Config) error

	// Dir holds temporary files: tls.crt and tls.key of 127.0.0.1 as of
	// cert-manager, and ca.crt.
	Dir     string
	Cluster *controlplane.Cluster
	Admin   client.Client
	Cloud   *cloudtest.Cloud
	// Server, Webhook and Sidecar are loopback addresses on which nothing
	// listens before Start.
	Server, Webhook, Sidecar string
	Pod                      *corev1.Pod
	// Token is the pod's, from Inject on.
	Token string
	ca    []byte
}

// SetUp starts the control plane, from the programs in the folder assets, and
// AWS.
func (s *Scenario) SetUp(assets string) error {
	cluster, err := controlplane.Start(assets)
	if err != nil {
		return err
	}
	s.Defer(cluster.Stop)
	return s.SetUpOn(cluster)
}

// SetUpOn starts AWS beside a control plane that the caller stops.
func (s *Scenario) SetUpOn(cluster *controlplane.Cluster) (err error) {
	s.Cluster = cluster
	if s.Dir, err = os.MkdirTemp("", "iam-credentials-"); err != nil {
		return err
	}
	s.Defer(func() error { return os.RemoveAll(s.Dir) })
	if s.Cloud, err = cloudtest.NewCloud(); err != nil {
		return err
	}
	s.Defer(func() error { s.Cloud.Close(); return nil })
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	if s.Admin, err = client.New(s.Cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	for _, address := range []*string{&s.Server, &s.Webhook, &s.Sidecar} {
		if *address, err = FreeAddress(); err != nil {
			return err
		}
	}
	if err := s.trustServer(); err != nil {
		return err
	}
	s.ca, err = writeCertificate(s.Dir)
	return err
}

// FreeAddress returns a loopback address on which nothing listens.
func FreeAddress() (string, error) {
	port, err := controlplane.FreePort()
	return net.JoinHostPort("127.0.0.1", port), err
}

// trustServer gives the server a role, as IAM roles for service accounts do.
func (s *Scenario) trustServer() error {
	fetch, err := rest.HTTPClientFor(rest.AnonymousClientConfig(s.Cluster.Config()))
	if err != nil {
		return err
	}
	s.Cloud.AWS().AddOIDCProvider(account, s.Cluster.IssuerURL(), fetch, awsauth.DefaultAudience)
	s.Cloud.AWS().SetRole(serverRole,
		cloudtest.Trust{Issuer: s.Cluster.IssuerURL(),
			Subjects: []string{"system:serviceaccount:" + Namespace + ":" + ServerAccount}})
	return nil
}

// Login is the login of the server. In a cluster it is the environment of the
// server's pod. Here it is a ServiceAccount, which serves bindings of other
// namespaces.
func (s *Scenario) Login() []auth.Option {
	own := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: ServerAccount,
		Annotations: map[string]string{awsauth.RoleARNAnnotation: serverRole}}}
	return []auth.Option{
		auth.WithSubjectToken(&auth.TokenRequest{Client: s.Admin, ServiceAccount: &own}, own),
		auth.WithHTTPClient(s.Cloud.Client()),
		auth.WithPolicy(auth.Policy{AllowCrossNamespace: func(cache.InvolvedObject, client.ObjectKey) bool { return true }}),
	}
}

// writeCertificate writes a certificate of 127.0.0.1, and returns the CA that
// it chains to.
func writeCertificate(dir string) ([]byte, error) {
	pem, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{"tls.crt": pem, "tls.key": key, "ca.crt": pem} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	return pem, err
}

// ConfigOf returns the configuration of a ServiceAccount of the installation.
func (s *Scenario) ConfigOf(ctx context.Context, account string) (*rest.Config, error) {
	kube := rest.AnonymousClientConfig(s.Cluster.Config())
	var err error
	kube.BearerToken, err = RequestToken(ctx, s.Admin, Namespace, account, nil)
	return kube, err
}
