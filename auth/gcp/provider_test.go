package gcp_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	number       = "123456789012"
	pool         = "projects/" + number + "/locations/global/workloadIdentityPools/cluster-1"
	poolProvider = pool + "/providers/east"
)

func principal(namespace, name string) string {
	return "principal://iam.googleapis.com/" + pool + "/subject/system:serviceaccount:" + namespace + ":" + name
}

func email(tenant string) string { return tenant + "@project.iam.gserviceaccount.com" }

// environment is a cluster with two tenants, and a cloud whose pool trusts it.
// In each tenant, the ServiceAccount app impersonates a service account, and
// the ServiceAccount direct does not.
type environment struct{ *testenv.Environment }

func newEnvironment(t testing.TB, more ...client.Object) *environment {
	t.Helper()
	tenants := []string{"tenant-a", "tenant-b"}
	for _, tenant := range tenants {
		more = append(more,
			testenv.ServiceAccount(tenant, "app", gcp.WorkloadIdentityProviderAnnotation, poolProvider,
				gcp.ServiceAccountAnnotation, email(tenant)),
			testenv.ServiceAccount(tenant, "direct", gcp.WorkloadIdentityProviderAnnotation, poolProvider),
			testenv.ServiceAccount(tenant, "gke"))
	}
	w := &environment{testenv.New(t, more...)}
	w.trust(poolProvider)
	for _, tenant := range tenants {
		w.mayImpersonate(tenant, "app", email(tenant))
	}
	return w
}

// trust makes a provider of the pool trust the cluster.
func (w *environment) trust(provider string) {
	w.Cloud.GCP().SetWorkloadIdentityProvider(provider,
		cloudtest.WorkloadIdentityProvider{Issuer: w.Issuer.URL(), Fetch: w.Issuer.HTTPClient()})
}

// mayImpersonate creates a service account for one ServiceAccount.
func (w *environment) mayImpersonate(namespace, name, email string) {
	w.Cloud.GCP().SetServiceAccount(email,
		cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{principal(namespace, name)}})
}

// inGKE has the metadata server answer, and the project's own pool trust the
// cluster.
func (w *environment) inGKE() {
	w.Cloud.GCP().SetMetadata(&cloudtest.GCPMetadata{ProjectID: "project", ClusterLocation: "europe-west1",
		ClusterName: "prod", Email: email("controller")})
	w.Cloud.GCP().SetGKEIdentityNamespace("project", number, "europe-west1", "prod", w.Issuer.URL(), w.Issuer.HTTPClient())
}

func (w *environment) get(t testing.TB, namespace, name string, more ...auth.Option) (*gcp.Token, error) {
	t.Helper()
	return w.getFrom(t, &gcp.Provider{}, namespace, name, more...)
}

func (w *environment) getFrom(t testing.TB, p *gcp.Provider, namespace, name string,
	more ...auth.Option) (*gcp.Token, error) {
	t.Helper()
	return get(t, p, w.Options(namespace, name, more...)...)
}

func get(t testing.TB, p *gcp.Provider, opts ...auth.Option) (*gcp.Token, error) {
	t.Helper()
	token, err := auth.GetAccessToken(t.Context(), p, opts...)
	if err != nil {
		return nil, err
	}
	return gcp.FromToken(token)
}

func TestServiceAccountWithoutImpersonation(t *testing.T) {
	w := newEnvironment(t)
	token, err := w.get(t, "tenant-a", "direct")
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.Cloud.GCP().Identity(token.AccessToken())
	if id.Subject != "system:serviceaccount:tenant-a:direct" ||
		!slices.Contains(id.Members, principal("tenant-a", "direct")) || id.Email != "" {
		t.Errorf("got the token of %+v", id)
	}
	if want := []string{"https://www.googleapis.com/auth/cloud-platform",
		"https://www.googleapis.com/auth/userinfo.email"}; !slices.Equal(id.Scopes, want) {
		t.Errorf("scopes %q", id.Scopes)
	}
	if token.ServiceAccountEmail() != "" || token.GetDuration() > time.Hour || token.GetDuration() < 59*time.Minute {
		t.Errorf("token %v of %q lives for %s", token, token.ServiceAccountEmail(), token.GetDuration())
	}
	calls := w.Cloud.Log()
	if len(calls) != 1 || calls[0].Host != "sts.googleapis.com" ||
		calls[0].Parameters["audience"] != "//iam.googleapis.com/"+poolProvider {
		t.Errorf("calls: %+v", calls)
	}
}

func TestServiceAccountImpersonates(t *testing.T) {
	w := newEnvironment(t)
	token, err := w.get(t, "tenant-a", "app", auth.WithScopes("https://www.googleapis.com/auth/devstorage.read_only"))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.Cloud.GCP().Identity(token.AccessToken())
	if id.Email != email("tenant-a") || token.ServiceAccountEmail() != id.Email ||
		!id.Expiration.Equal(token.ExpiresAt()) {
		t.Errorf("got the token of %+v", id)
	}
	if !slices.Equal(id.Scopes, []string{"https://www.googleapis.com/auth/devstorage.read_only"}) {
		t.Errorf("scopes %q", id.Scopes)
	}
	// The token that goes to IAM needs a scope for that.
	if scope := w.Cloud.Log()[0].Parameters["scope"]; scope != "https://www.googleapis.com/auth/cloud-platform" {
		t.Errorf("the federated token has the scope %q", scope)
	}
}

func TestScopesOfTheCaller(t *testing.T) {
	w := newEnvironment(t)
	token, err := w.get(t, "tenant-a", "direct", auth.WithScopes("https://a.example/1", "https://a.example/2"))
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := w.Cloud.GCP().Identity(token.AccessToken()); !slices.Equal(id.Scopes,
		[]string{"https://a.example/1", "https://a.example/2"}) {
		t.Errorf("scopes %q", id.Scopes)
	}
	for _, bad := range []string{"a b", "a,b", "a\n", `a"`, "\x00", "ä"} {
		_, err := w.get(t, "tenant-a", "direct", auth.WithScopes(bad))
		testenv.CheckError(t, err, auth.ErrMisconfigured, "is not a scope")
	}
}

// The error of a refusal has what an administrator of the service account
// needs.
func TestRefusalOfTheServiceAccount(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-b", "thief", gcp.WorkloadIdentityProviderAnnotation,
		poolProvider, gcp.ServiceAccountAnnotation, email("tenant-a")))
	_, err := w.get(t, "tenant-b", "thief")
	testenv.CheckError(t, err, auth.ErrDenied, `gcp: ServiceAccount "tenant-b/thief"`,
		fmt.Sprintf("service account %q", email("tenant-a")), "PERMISSION_DENIED", "HTTP 403",
		principal("tenant-b", "thief"), "roles/iam.workloadIdentityUser")
}

// A token that is cached costs nothing, and what shapes it splits the cache.
func TestCache(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.GCP().SetServiceAccount(email("tenant-a"), cloudtest.GCPServiceAccount{
		WorkloadIdentityUsers: []string{principal("tenant-a", "app")},
		TokenCreators:         []string{"serviceAccount:" + email("between")}})
	w.Cloud.GCP().SetServiceAccount(email("between"),
		cloudtest.GCPServiceAccount{TokenCreators: []string{principal("tenant-a", "app")}})
	p, tokens := &gcp.Provider{}, testenv.Cache(t)
	policy := auth.WithPolicy(auth.Policy{Audiences: []string{"https://a.example", "https://b.example"}})
	get := func(more ...auth.Option) {
		t.Helper()
		opts := w.Options("tenant-a", "app", append(more, policy, testenv.WithCache(tokens, "tenant-a"))...)
		if _, err := auth.GetAccessToken(t.Context(), p, opts...); err != nil {
			t.Fatal(err)
		}
	}
	variants := [][]auth.Option{
		nil,
		{auth.WithScopes("https://www.googleapis.com/auth/devstorage.read_only")},
		{gcp.WithLifetime(10 * time.Minute)},
		{gcp.WithLifetime(20 * time.Minute)},
		{gcp.WithDelegates(email("between"))},
		{gcp.WithIDTokenAudience("https://a.example")},
		{gcp.WithIDTokenAudience("https://b.example")},
	}
	for range 3 {
		for _, v := range variants {
			get(v...)
		}
	}
	if n := w.Cloud.Calls("gcp-sts", ""); n != len(variants) {
		t.Errorf("%d exchanges for %d different tokens", n, len(variants))
	}
}

// With an audience of the caller's, the provider of the annotation still
// decides where the token is exchanged.
func TestProviderIsPartOfTheKey(t *testing.T) {
	w := newEnvironment(t)
	other := pool + "/providers/west"
	for _, name := range []string{poolProvider, other} {
		w.Cloud.GCP().SetWorkloadIdentityProvider(name, cloudtest.WorkloadIdentityProvider{
			Issuer: w.Issuer.URL(), Fetch: w.Issuer.HTTPClient(), AllowedAudiences: []string{"shared"}})
	}
	tokens := testenv.Cache(t)
	get := func() {
		t.Helper()
		if _, err := w.get(t, "tenant-a", "direct", testenv.WithCache(tokens, "tenant-a"), auth.WithAudiences("shared"),
			auth.WithPolicy(auth.Policy{Audiences: []string{"shared"}})); err != nil {
			t.Fatal(err)
		}
	}
	get()
	sa := &corev1.ServiceAccount{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "direct"}, sa); err != nil {
		t.Fatal(err)
	}
	sa.Annotations[gcp.WorkloadIdentityProviderAnnotation] = other
	if err := w.Client.Update(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	get()
	if calls := w.Cloud.Log(); len(calls) != 2 || calls[1].Parameters["audience"] != "//iam.googleapis.com/"+other {
		t.Errorf("calls: %+v", calls)
	}
}

func TestConformance(t *testing.T) {
	w := newEnvironment(t,
		testenv.ServiceAccount("tenant-a", "refused", gcp.WorkloadIdentityProviderAnnotation, poolProvider,
			gcp.ServiceAccountAnnotation, email("tenant-b")),
		testenv.ServiceAccount("tenant-a", "malformed", gcp.WorkloadIdentityProviderAnnotation,
			"projects/my-project/locations/global/workloadIdentityPools/cluster-1/providers/east"))
	const west = pool + "/providers/west"
	w.trust(west)
	w.mayImpersonate("tenant-a", "app", email("second"))
	w.setCluster(cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", CA: w.Cloud.CA()})
	authtest.RunConformance(t, authtest.Harness{
		Repository: "europe-docker.pkg.dev/project/repo/app",
		ForeignRepositories: []string{"europe-docker.pkg.dev.evil.example/project", "docker.io/library/alpine",
			"gcr.io:8443/project"},
		Cluster:        []auth.Option{auth.WithClusterResource(clusterName)},
		GitURL:         "https://" + gitHost + "/project/repo",
		ForeignGitURLs: []string{"https://" + gitHost + ".evil.example/project/repo", "https://github.com/org/repo"},
		Fields: map[string]any{"UniverseDomain": "universe.example", "AllowExtendedLifetime": nil,
			"AllowedSTSHosts": nil, "STSAudiences": nil},
		NoRegions: true,
		New:       func(*testing.T) auth.Provider { return &gcp.Provider{} },
		Options:   []auth.Option{auth.WithHTTPClient(w.Cloud.Client())},
		Client:    w.Client,
		Good:      client.ObjectKey{Namespace: "tenant-a", Name: "app"},
		Other:     client.ObjectKey{Namespace: "tenant-b", Name: "app"},
		Refused:   client.ObjectKey{Namespace: "tenant-a", Name: "refused"},
		Annotations: map[string]string{gcp.WorkloadIdentityProviderAnnotation: west,
			gcp.ServiceAccountAnnotation: email("second")},
		Malformed: client.ObjectKey{Namespace: "tenant-a", Name: "malformed"},
		Calls:     func() int { return w.Cloud.Calls("", "") },
		Break:     w.Break,
		Secrets: func(t *testing.T, token auth.Token) []string {
			own, err := gcp.FromToken(token)
			if err != nil {
				t.Fatal(err)
			}
			return []string{own.AccessToken()}
		},
	})
}
