package doctorcmd

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	podidentitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/podidentity"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	addonv1alpha1 "github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// newDoctorClient knows the kinds that the checks read and create, and asks the
// API server for no others: the lookup of kinds has no deadline.
func newDoctorClient(config *rest.Config) (client.Client, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for version, kinds := range map[schema.GroupVersion][]string{
		corev1.SchemeGroupVersion:         {"ConfigMap", "Event", "Pod", "Secret", "ServiceAccount"},
		appsv1.SchemeGroupVersion:         {"Deployment"},
		coordinationv1.SchemeGroupVersion: {"Lease"}, v1alpha1.GroupVersion: {"IAMBinding"},
		addon.GroupVersion: {"ManagedClusterAddOn"}, addonv1alpha1.GroupVersion: {"ManagedClusterAddOn"},
	} {
		for _, kind := range kinds {
			mapper.Add(version.WithKind(kind), meta.RESTScopeNamespace)
		}
	}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Namespace"),
		certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
		authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
		authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), ocm.GroupVersion.WithKind("ManagedCluster"),
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
	} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "wid"
	return client.New(config, client.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper})
}

// connect returns a client of the cluster that a kubeconfig leads to, and its
// name for the report.
func (x *examiner) connect(k cli.KubeFile) (kube client.Client, name string, err error) {
	config, _, err := k.Config()
	if err == nil {
		config.WarningHandlerWithContext = podidentitydoctor.Warnings{}
		err = x.clients.Watch(config, x.stderr)
	}
	if err == nil {
		kube, err = newDoctorClient(config)
	}
	if err != nil {
		return nil, "", cli.Usagef("the kubeconfig cannot be used: %s", cli.KubeconfigMistake(err))
	}
	return kube, describe(k.Current(), config), nil
}

// describe returns the text of a report's first line.
func describe(name string, config *rest.Config) string {
	host := redact.URL(strings.TrimSuffix(config.Host, "/"))
	if name != "" {
		return "cluster " + name + " (" + host + ")"
	}
	return "cluster " + host
}

func same(s string) string { return s }
