package doctorcmd

import (
	"context"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/doctor"
	podidentitydoctor "github.com/workloadid/workloadid/internal/doctor/podidentity"
	"github.com/workloadid/workloadid/internal/redact"
)

// newDoctorClient knows the kinds that the checks of an identity read and create, and asks the API server for no others.
func newDoctorClient(config *rest.Config) (client.Client, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ServiceAccount", "Pod"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Namespace"),
		authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), authenticationv1.SchemeGroupVersion.WithKind("TokenReview")} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "wid"
	return client.New(config, client.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper})
}

// kubeCluster is a cluster that a kubeconfig leads to.
type kubeCluster struct {
	client.Client

	config *rest.Config
	name   string // for the report
}

// reader returns no client.Reader for no cluster.
func (c *kubeCluster) reader() client.Reader {
	if c == nil {
		return nil
	}
	return c.Client
}

// open connects to the cluster. Its client looks up kinds at the API server. nil: no kubeconfig and no context was named.
func (x *examiner) open(k cli.KubeFile) (*kubeCluster, error) {
	if k.Path == "" && k.Context == "" {
		return nil, nil //nolint:nilnil // see above
	}
	return x.connect(k)
}

// connect is open with kubectl's defaults.
func (x *examiner) connect(k cli.KubeFile) (*kubeCluster, error) {
	unusable := func(err error) error {
		return cli.Usagef("the kubeconfig cannot be used: %s", cli.KubeconfigMistake(err))
	}
	config, err := k.Config()
	if err != nil {
		return nil, unusable(err)
	}
	config.UserAgent, config.WarningHandlerWithContext = "wid", podidentitydoctor.Warnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next} })
	x.sent.Watch(config)
	if err := x.relay(config); err != nil {
		return nil, unusable(err)
	}
	kube, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, unusable(err)
	}
	return &kubeCluster{Client: kube, config: config, name: describe(k, config)}, nil
}

// limited bounds each read, because the lookup of kinds has no context. A creation has the deadline of its check, within which the API
// server names a webhook that does not answer.
type limited struct{ next http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, bounded := r.Context().Deadline(); bounded && r.Method != http.MethodGet {
		return l.next.RoundTrip(r)
	}
	const each = 5 * time.Second
	ctx, cancel := context.WithTimeout(r.Context(), each)
	context.AfterFunc(ctx, cancel) // the body is read until then
	return l.next.RoundTrip(r.WithContext(ctx))
}

// describe returns the text of a report's first line.
func describe(k cli.KubeFile, config *rest.Config) string {
	host := redact.URL(strings.TrimSuffix(config.Host, "/"))
	if name := k.Current(); name != "" {
		return "cluster " + name + " (" + host + ")"
	}
	return "cluster " + host
}

// inCluster makes the commands of a remedy ask the examined cluster.
func inCluster(k cli.KubeFile, f *doctor.Finding) { f.Rewrite(same, k.Kubectl) }

func same(s string) string { return s }

// readAccount reads the ServiceAccount, or that of the pod.
func readAccount(ctx context.Context, kube client.Reader, key, pod client.ObjectKey) (*corev1.ServiceAccount, error) {
	if key.Name == "" {
		p := &corev1.Pod{}
		if err := kube.Get(ctx, pod, p); err != nil {
			return nil, err
		}
		key = client.ObjectKey{Namespace: pod.Namespace, Name: p.Spec.ServiceAccountName}
	}
	sa := &corev1.ServiceAccount{}
	return sa, kube.Get(ctx, key, sa)
}
