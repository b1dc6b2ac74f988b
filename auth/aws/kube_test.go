package aws_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// controllerRules are the rules that a controller needs for the ServiceAccounts
// of its tenants.
func controllerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
	}
}

// realCluster is one whose issuer a fake AWS account trusts, with a controller
// that has some rules.
type realCluster struct {
	*kubetest.Cluster
	cloud  *cloudtest.Cloud
	client client.Client
	user   string
}

func newRealCluster(t *testing.T, cluster *kubetest.Cluster, rules ...rbacv1.PolicyRule) *realCluster {
	t.Helper()
	cloud := testenv.Cloud(t)
	cloud.AWS().AddOIDCProvider(account, cluster.IssuerURL(), cluster.IssuerClient(t), aws.DefaultAudience)
	user := "controller-of-" + strings.ReplaceAll(t.Name(), "/", "-")
	c, err := client.New(cluster.User(t, user, "", rules...), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &realCluster{cluster, cloud, c, user}
}

// tenant creates a namespace with a ServiceAccount "app" and a role that trusts
// it.
func (w *realCluster) tenant(t *testing.T) string {
	t.Helper()
	namespace := w.Namespace(t)
	sa := testenv.ServiceAccount(namespace, "app", aws.RoleARNAnnotation, role(namespace))
	if err := w.Client().Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	w.cloud.AWS().SetRole(role(namespace),
		cloudtest.Trust{Issuer: w.IssuerURL(), Subjects: []string{testenv.Subject(namespace, "app")}})
	return namespace
}

func (w *realCluster) get(t *testing.T, namespace string, opts ...auth.Option) (*aws.Token, error) {
	t.Helper()
	return get(t, &aws.Provider{}, append([]auth.Option{
		auth.WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: "app"}, w.client),
		testenv.Owner(namespace), auth.WithSTSRegion("eu-central-1"),
		auth.WithHTTPClient(w.cloud.Client()),
	}, opts...)...)
}

// With a real API server as the issuer: STS reads its documents, verifies its
// tokens, and gives each tenant his role.
func TestRealAPIServer(t *testing.T) {
	w := newRealCluster(t, kubetest.Start(t), controllerRules()...)
	a, b := w.tenant(t), w.tenant(t)
	tokens := testenv.Cache(t)
	for range 3 {
		for _, namespace := range []string{a, b} {
			token, err := w.get(t, namespace, testenv.WithCache(tokens, namespace))
			if err != nil {
				t.Fatal(err)
			}
			if id, _ := w.cloud.AWS().Identity(token.AccessKeyID()); id.RoleARN != role(namespace) ||
				id.SessionName != namespace+".app" {
				t.Errorf("tenant %s got %+v", namespace, id)
			}
		}
	}
	count := map[string]int{}
	for _, r := range w.Audit(t, w.user) {
		if r.Resource == "serviceaccounts" {
			count[r.Verb+" "+r.Subresource]++
		}
	}
	if count["get "] != 6 || count["create token"] != 2 || w.cloud.Calls("sts", "") != 2 {
		t.Errorf("six calls made %v and %d exchanges", count, w.cloud.Calls("sts", ""))
	}
}

// The error names the RBAC rule that the controller lacks.
func TestRealAPIServerWithoutRules(t *testing.T) {
	cluster := kubetest.Start(t)
	for name, tc := range map[string]struct {
		rules []rbacv1.PolicyRule
		want  string
	}{
		"none": {nil, `verb get on serviceaccounts in namespace "%"`},
		"read": {controllerRules()[:1], `verb create on serviceaccounts/token, resourceNames ["app"], in namespace "%"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRealCluster(t, cluster, tc.rules...)
			namespace := w.tenant(t)
			_, err := w.get(t, namespace)
			testenv.CheckError(t, err, auth.ErrDenied, "HTTP 403", w.user, strings.ReplaceAll(tc.want, "%", namespace))
			if n := w.cloud.Calls("", ""); n != 0 {
				t.Errorf("%d exchanges", n)
			}
		})
	}
}
