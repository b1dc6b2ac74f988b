package identity_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kubetest.Main(m)) }

const (
	account      = "123456789012"
	roleARN      = "arn:aws:iam::" + account + ":role/tenant-a"
	clusterARN   = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"
	ecrHost      = account + ".dkr.ecr.eu-central-1.amazonaws.com"
	azureTenant  = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	azureClient  = "11111111-2222-4333-8444-555555555555"
	acrHost      = "example.azurecr.io"
	poolProvider = "projects/123456789012/locations/global/workloadIdentityPools/east/providers/east"
	gcpEmail     = "app@my-project.iam.gserviceaccount.com"
	garHost      = "europe-docker.pkg.dev"
	subject      = "system:serviceaccount:tenant-a:app"
	gcpPool      = "projects/123456789012/locations/global/workloadIdentityPools/east"
	principal    = "principal://iam.googleapis.com/" + gcpPool + "/subject/" + subject
)

// environment is a cluster and a cloud in which everything fits, until a fault
// changes that.
type environment struct {
	t       *testing.T
	issuer  *cloudtest.Issuer
	cloud   *cloudtest.Cloud
	account *corev1.ServiceAccount
	pod     *corev1.Pod
	user    user
	// serve is the issuer as anonymous clients see it.
	serve  http.Handler
	config identity.Config
	env    map[string]string
	// withoutCluster leaves the client out.
	withoutCluster bool
	dir, tokenFile string
	hangs          string // a host that gives no answer, see inMemory
}

func newEnvironment(t *testing.T, provider string) *environment {
	t.Helper()
	issuer := testenv.Issuer(t)
	cloud := testenv.Cloud(t)
	w := &environment{t: t, cloud: cloud, dir: t.TempDir(), env: map[string]string{},
		user: user{name: "system:serviceaccount:system:controller", groups: []string{"system:serviceaccounts"}}}
	w.account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		Annotations: map[string]string{}, UID: "0b7c4a4e-0000-4000-8000-000000000001"}}
	w.config = identity.Config{ServiceAccount: client.ObjectKeyFromObject(w.account),
		Options: []auth.Option{auth.WithHTTPClient(cloud.Client()), auth.WithSTSRegion("eu-central-1")}}
	w.use(issuer)
	switch provider {
	case "aws":
		w.config.Provider = &aws.Provider{}
		w.account.Annotations[aws.RoleARNAnnotation] = roleARN
	case "azure":
		w.config.Provider = &azure.Provider{}
		w.account.Annotations[azure.ClientIDAnnotation] = azureClient
		w.account.Annotations[azure.TenantIDAnnotation] = azureTenant
	case "gcp":
		w.config.Provider = &gcp.Provider{}
		w.account.Annotations[gcp.WorkloadIdentityProviderAnnotation] = poolProvider
		w.account.Annotations[gcp.ServiceAccountAnnotation] = gcpEmail
	case "generic":
		w.config.Provider = &token.Provider{}
		w.config.Options = []auth.Option{auth.WithAudiences("vault"),
			auth.WithPolicy(auth.Policy{Audiences: []string{"vault"}})}
	}
	return w
}

// own gives the environment an issuer of its own, whose keys may be changed.
func (w *environment) own() *cloudtest.Issuer {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.use(issuer)
	return issuer
}

// use has all clouds trust the issuer.
func (w *environment) use(issuer *cloudtest.Issuer) {
	w.issuer, w.serve = issuer, issuer
	fetch := issuer.HTTPClient()
	w.cloud.AWS().AddOIDCProvider(account, issuer.URL(), fetch, aws.DefaultAudience)
	w.cloud.AWS().SetRole(roleARN, cloudtest.Trust{Issuer: issuer.URL(), Subjects: []string{subject}})
	w.federate(cloudtest.FederatedCredential{Issuer: issuer.URL(), Subject: subject, Audience: azure.DefaultAudience,
		Fetch: fetch})
	w.pool(func(*cloudtest.WorkloadIdentityProvider) {})
	w.cloud.GCP().SetServiceAccount(gcpEmail, cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{principal}})
}

// federate replaces the federated credentials.
func (w *environment) federate(c ...cloudtest.FederatedCredential) {
	w.cloud.Azure().RemoveFederatedCredentials(azureTenant, azureClient)
	for _, one := range c {
		w.cloud.Azure().AddFederatedCredential(azureTenant, azureClient, one)
	}
}

// credential is the one that fits, changed.
func (w *environment) credential(change func(*cloudtest.FederatedCredential)) {
	c := cloudtest.FederatedCredential{Issuer: w.issuer.URL(), Subject: subject, Audience: azure.DefaultAudience,
		Fetch: w.issuer.HTTPClient()}
	change(&c)
	w.federate(c)
}

// pool replaces the workload identity provider by the one that fits, changed.
func (w *environment) pool(change func(*cloudtest.WorkloadIdentityProvider)) {
	p := cloudtest.WorkloadIdentityProvider{Issuer: w.issuer.URL(), Fetch: w.issuer.HTTPClient()}
	change(&p)
	w.cloud.GCP().SetWorkloadIdentityProvider(poolProvider, p)
}

func (w *environment) audience() string {
	switch w.config.Provider.GetName() {
	case "aws":
		return aws.DefaultAudience
	case "azure":
		return azure.DefaultAudience
	case "gcp":
		return "//iam.googleapis.com/" + poolProvider
	}
	return "vault"
}

// sign makes a token like that of the API server, changed.
func (w *environment) sign(change func(claims map[string]any)) string {
	claims := w.issuer.Claims(w.account, []string{w.audience()}, time.Hour)
	if change != nil {
		change(claims)
	}
	signed, err := w.issuer.Sign(claims)
	if err != nil {
		w.t.Fatal(err)
	}
	return signed
}

// write has the token come from a file with the given content.
func (w *environment) write(content string) {
	w.tokenFile = filepath.Join(w.dir, "token")
	if err := os.WriteFile(w.tokenFile, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.config.Token = auth.NewFileTokenSource(w.tokenFile)
}

// anonymous reaches the issuer over TLS at its own name.
func (w *environment) anonymous() *http.Client {
	server := httptest.NewTLSServer(w.serve)
	t, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		w.t.Fatal("no transport")
	}
	t = t.Clone()
	t.TLSClientConfig.ServerName = "example.com" // that of the server's certificate
	t.DialContext = toward(server.Listener.Addr().String())
	w.t.Cleanup(func() {
		t.CloseIdleConnections()
		server.Close()
	})
	return &http.Client{Transport: t}
}

// toward connects to one address, whatever the name.
func toward(address string) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// api is the cluster's API server as far as its documents go.
func (w *environment) api() *rest.Config {
	server := httptest.NewServer(w.issuer)
	w.t.Cleanup(server.Close)
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &rest.Config{Host: server.URL, Transport: transport}
}

func (w *environment) run() *doctor.Report {
	w.t.Helper()
	if w.config.IssuerClient == nil {
		w.config.IssuerClient = w.anonymous()
	}
	if !w.withoutCluster && w.config.Client == nil {
		objs := []runtime.Object{w.account, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.account.Namespace}}}
		if w.pod != nil {
			objs = append(objs, w.pod)
		}
		w.config.Client = asUser(w.issuer.Wrap(fake.NewFakeClient(objs...)), w.user)
		if w.config.RESTConfig == nil {
			w.config.RESTConfig = w.api()
		}
	}
	w.config.Getenv = func(name string) string { return w.env[name] }
	return identity.Run(w.t.Context(), w.config)
}

var errNowhere = errors.New("no route to host")

var errNodeAudience = apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "app",
	errors.New(
		`audience "sts.amazonaws.com" not found in pod spec volume, system:node:n is not authorized to request tokens for this audience`))

// answer has a service refuse.
func answer(service, action string, status int, code, message string) func(w *environment) {
	return func(w *environment) {
		w.cloud.AddFault(cloudtest.Fault{Service: service, Action: action, Status: status, Code: code, Message: message})
	}
}

// annotate changes the ServiceAccount's annotations. An empty value removes
// one.
func annotate(pairs ...string) func(w *environment) {
	return func(w *environment) {
		for i := 0; i < len(pairs); i += 2 {
			if w.account.Annotations[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
				delete(w.account.Annotations, pairs[i])
			}
		}
	}
}

// user is the user of a client, as its API server sees them.
type user struct {
	// name is empty if the API server refuses every request with 401.
	name   string
	groups []string
	// mayNot lists resources that the user must not create, such as
	// "serviceaccounts/token", and "get serviceaccounts".
	mayNot []string
}

// asUser returns a client of the same API server for a user. It also answers
// SelfSubjectReviews.
func asUser(c client.WithWatch, u user) client.WithWatch {
	api := &reviewer{user: u}
	return interceptor.NewClient(c,
		interceptor.Funcs{Get: api.get, Create: api.create, SubResourceCreate: api.createSubResource})
}

type reviewer struct {
	user user
}

func (v *reviewer) may(resource string) bool { return !slices.Contains(v.user.mayNot, resource) }

func (v *reviewer) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption) error {
	if v.user.name == "" {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; (kind == "ServiceAccount" || kind == "") &&
		!v.may("get serviceaccounts") {
		return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), key.Name, nil)
	}
	return c.Get(ctx, key, obj, opts...)
}

func (v *reviewer) create(ctx context.Context, c client.WithWatch, obj client.Object,
	opts ...client.CreateOption) error {
	if v.user.name == "" {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if review, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
		review.Status.UserInfo = authenticationv1.UserInfo{Username: v.user.name, Groups: v.user.groups}
		return nil
	}
	return c.Create(ctx, obj, opts...)
}

func (v *reviewer) createSubResource(ctx context.Context, c client.Client, name string, obj, sub client.Object,
	opts ...client.SubResourceCreateOption) error {
	if !v.may("serviceaccounts/" + name) {
		return forbidden(v.user.name, obj)
	}
	return c.SubResource(name).Create(ctx, obj, sub, opts...)
}

// forbidden returns the error of an API server whose RBAC does not let a user
// create tokens of a ServiceAccount.
func forbidden(user string, sa client.Object) error {
	words := fmt.Sprintf(`User %q cannot create resource "serviceaccounts/token" in API group "" in the namespace %q`,
		user, sa.GetNamespace())
	return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), sa.GetName(), errors.New(words))
}
