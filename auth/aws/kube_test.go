package aws_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// kubeEnvironment is a real cluster whose issuer a fake AWS account trusts,
// with a controller that has the rules it needs.
type kubeEnvironment struct {
	cluster *kubetest.Cluster
	cloud   *cloudtest.Cloud
	client  client.Client
	user    string
}

func newKubeEnvironment(t *testing.T, cluster *kubetest.Cluster, rules ...rbacv1.PolicyRule) *kubeEnvironment {
	t.Helper()
	cloud := testenv.Cloud(t)
	cloud.AWS().AddOIDCProvider(account, cluster.IssuerURL(), cluster.IssuerClient(t), aws.DefaultAudience)
	user := "controller-of-" + strings.ReplaceAll(t.Name(), "/", "-")
	c, err := client.New(cluster.User(t, user, "", rules...), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &kubeEnvironment{cluster, cloud, c, user}
}

// tenant creates a namespace with a ServiceAccount "app" and a role that trusts
// it.
func (w *kubeEnvironment) tenant(t *testing.T) string {
	t.Helper()
	namespace := w.cluster.Namespace(t)
	w.create(t, testenv.ServiceAccount(namespace, "app", aws.RoleARNAnnotation, role(namespace)))
	w.cloud.AWS().SetRole(role(namespace),
		cloudtest.Trust{Issuer: w.cluster.IssuerURL(), Subjects: []string{"system:serviceaccount:" + namespace + ":app"}})
	return namespace
}

func (w *kubeEnvironment) create(t *testing.T, sa *corev1.ServiceAccount) {
	t.Helper()
	if err := w.cluster.Client().Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
}

func (w *kubeEnvironment) get(t *testing.T, namespace, name string, opts ...auth.Option) (*aws.Token, error) {
	t.Helper()
	return get(t, &aws.Provider{}, append([]auth.Option{
		auth.WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: name}, w.client),
		auth.WithOwner(object(namespace)), auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.cloud.Client()),
	}, opts...)...)
}

// With a real API server as the issuer: STS reads its documents, verifies its
// tokens, and gives each tenant his role.
func TestRealAPIServer(t *testing.T) {
	w := newKubeEnvironment(t, kubetest.Start(t), controllerRules()...)
	a, b := w.tenant(t), w.tenant(t)
	tokens := testenv.Cache(t)
	for range 3 {
		for _, namespace := range []string{a, b} {
			token, err := w.get(t, namespace, "app", auth.WithCache(tokens, object(namespace)))
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
	for _, r := range w.cluster.Audit(t, w.user) {
		if r.Resource == "serviceaccounts" {
			count[r.Verb+" "+r.Subresource]++
		}
	}
	if count["get "] != 6 || count["create token"] != 2 || w.cloud.Calls("sts", "") != 2 {
		t.Errorf("six calls made %v and %d exchanges", count, w.cloud.Calls("sts", ""))
	}
}

func TestRealAPIServerRefusals(t *testing.T) {
	w := newKubeEnvironment(t, kubetest.Start(t), controllerRules()...)
	a, b := w.tenant(t), w.tenant(t)
	w.create(t, testenv.ServiceAccount(b, "thief", aws.RoleARNAnnotation, role(a)))
	w.create(t, testenv.ServiceAccount(b, "relay", aws.RoleARNAnnotation, role(a), aws.AudienceAnnotation, "vault"))

	_, err := w.get(t, b, "thief")
	testenv.CheckError(t, err, auth.ErrDenied, "AccessDenied", `"system:serviceaccount:`+b+`:thief"`)
	_, err = w.get(t, b, "relay", auth.WithPolicy(auth.Policy{Audiences: []string{"vault"}}))
	testenv.CheckError(t, err, auth.ErrDenied, "Incorrect token audience")
	_, err = w.get(t, b, "nobody")
	testenv.CheckError(t, err, auth.ErrMisconfigured, "not found", "create it")
	_, err = w.get(t, a, "app", auth.WithAudiences(w.cluster.IssuerURL()),
		auth.WithPolicy(auth.Policy{AllowAnyAudience: true}))
	testenv.CheckError(t, err, auth.ErrDenied, "good for the API server")

	// The token itself, tampered with and late.
	sa := corev1.ServiceAccount{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: a, Name: "app"}, &sa); err != nil {
		t.Fatal(err)
	}
	jwt, expiry, err := (&auth.TokenRequest{Client: w.client, ServiceAccount: &sa}).Token(t.Context(),
		[]string{aws.DefaultAudience})
	if err != nil || time.Until(expiry) < 59*time.Minute {
		t.Fatalf("expires in %s, %v", time.Until(expiry), err)
	}
	inHand := func(jwt string) error {
		_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSubjectToken(auth.NewStaticTokenSource(jwt), sa),
			auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.cloud.Client()))
		return err
	}
	if err := inHand(jwt); err != nil {
		t.Errorf("the token as it is: %v", err)
	}
	middle := strings.LastIndexByte(jwt, '.') + 20
	flipped := "A"
	if jwt[middle] == 'A' {
		flipped = "B"
	}
	// STS has the same text for keys that it cannot fetch for now.
	testenv.CheckError(t, inHand(jwt[:middle]+flipped+jwt[middle+1:]), auth.ErrUnavailable, "InvalidIdentityToken",
		"could not be validated")
	w.cloud.SetClock(func() time.Time { return time.Now().Add(2 * time.Hour) })
	testenv.CheckError(t, inHand(jwt), auth.ErrUnavailable, "ExpiredTokenException", "clock")
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
			w := newKubeEnvironment(t, cluster, tc.rules...)
			namespace := w.tenant(t)
			_, err := w.get(t, namespace, "app")
			testenv.CheckError(t, err, auth.ErrDenied, "HTTP 403", w.user, strings.ReplaceAll(tc.want, "%", namespace))
			if n := w.cloud.Calls("", ""); n != 0 {
				t.Errorf("%d exchanges", n)
			}
		})
	}
}

// What happens to a ServiceAccount takes effect on the next call, although its
// credentials are cached.
func TestRealAPIServerRevocation(t *testing.T) {
	w := newKubeEnvironment(t, kubetest.Start(t), controllerRules()...)
	namespace := w.tenant(t)
	tokens := testenv.Cache(t)
	get := func() (*aws.Token, error) {
		return w.get(t, namespace, "app", auth.WithCache(tokens, object(namespace)))
	}
	first, err := get()
	if err != nil {
		t.Fatal(err)
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}}
	if err := w.cluster.Client().Delete(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	_, err = get()
	testenv.CheckError(t, err, auth.ErrMisconfigured, "not found")
	w.create(t, testenv.ServiceAccount(namespace, "app", aws.RoleARNAnnotation, role(namespace)))
	if again, err := get(); err != nil || again.AccessKeyID() == first.AccessKeyID() {
		t.Errorf("after re-creating: %v, %v", again, err)
	}
	sa = testenv.ServiceAccount(namespace, "app", aws.RoleARNAnnotation, "arn:aws:iam::123456789012:role/other")
	if err := w.cluster.Client().Update(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	_, err = get()
	testenv.CheckError(t, err, auth.ErrDenied, "role/other")
}

// Two clusters have the same namespace and ServiceAccount. Only one of them is
// trusted.
func TestSameSubjectInAnotherCluster(t *testing.T) {
	trusted := newKubeEnvironment(t, kubetest.Start(t), controllerRules()...)
	namespace := trusted.tenant(t)
	other := newKubeEnvironment(t, kubetest.StartNew(t), controllerRules()...)
	if err := other.cluster.Client().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	other.create(t, testenv.ServiceAccount(namespace, "app", aws.RoleARNAnnotation, role(namespace)))
	tokens := testenv.Cache(t)
	if _, err := trusted.get(t, namespace, "app", auth.WithCache(tokens, object(namespace))); err != nil {
		t.Fatal(err)
	}
	_, err := other.get(t, namespace, "app", auth.WithCache(tokens, object(namespace)),
		auth.WithHTTPClient(trusted.cloud.Client()))
	testenv.CheckError(t, err, auth.ErrDenied, "No OpenIDConnect provider found", "create the IAM OIDC provider")
}
