package token_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

var (
	app     = client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	object  = cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}
	allowed = auth.WithPolicy(auth.Policy{Audiences: []string{"vault"}})
)

func newIssuer(t *testing.T) (*cloudtest.Issuer, *cloudtest.Client) {
	t.Helper()
	issuer := testenv.Issuer(t)
	return issuer, issuer.Client(testenv.ServiceAccount("tenant-a", "app"), testenv.ServiceAccount("tenant-a", "second"))
}

func claims(t *testing.T, got auth.Token) *jwt.Claims {
	t.Helper()
	revealed, err := token.Reveal(got)
	if err != nil {
		t.Fatal(err)
	}
	c, err := jwt.Parse(revealed)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestServiceAccountToken(t *testing.T) {
	issuer, c := newIssuer(t)
	got, err := auth.GetAccessToken(t.Context(), &token.Provider{}, auth.WithServiceAccount(app, c),
		auth.WithOwner(object), auth.WithAudiences("vault"), allowed, auth.WithTokenLifetime(20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if cl := claims(t, got); cl.Issuer != issuer.URL() || cl.Subject != "system:serviceaccount:tenant-a:app" ||
		len(cl.Audience) != 1 || cl.Audience[0] != "vault" {
		t.Errorf("claims %+v", cl)
	}
	if d := got.GetDuration(); d > 20*time.Minute || d < 19*time.Minute {
		t.Errorf("lives for %s", d)
	}
}

// A token that has expired is no credential, also if the answer to the
// TokenRequest names a later time.
func TestExpiredTokenIsRefused(t *testing.T) {
	issuer, _ := newIssuer(t)
	for _, lifetime := range []time.Duration{-time.Hour, -time.Second} {
		t.Run(lifetime.String(), func(t *testing.T) {
			sa := testenv.ServiceAccount("tenant-a", "app")
			expired, err := issuer.Sign(issuer.Claims(sa, []string{"vault"}, lifetime))
			if err != nil {
				t.Fatal(err)
			}
			_, err = (&token.Provider{}).NewTokenForServiceAccount(t.Context(), expired, sa, &provider.Options{})
			testenv.CheckError(t, err, auth.ErrUnavailable, "expired")
		})
	}
}

func TestAudienceOfARemoteCluster(t *testing.T) {
	_, c := newIssuer(t)
	get := func(opts ...auth.Option) (auth.Token, error) {
		return auth.GetAccessToken(t.Context(), &token.Provider{},
			append(opts, auth.WithServiceAccount(app, c), auth.WithOwner(object))...)
	}
	got, err := get(auth.WithClusterAddress("https://cluster.example:6443"))
	if err != nil {
		t.Fatal(err)
	}
	if cl := claims(t, got); cl.Audience[0] != "https://cluster.example:6443" {
		t.Errorf("audience %q", cl.Audience)
	}
	if _, err := get(); !errors.Is(err, auth.ErrMisconfigured) || !strings.Contains(err.Error(), "WithAudiences") {
		t.Errorf("without an audience: %v", err)
	}
	if _, err := get(auth.WithAudiences("vault")); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("an audience that is not allowed: %v", err)
	}
	if _, err := get(auth.WithClusterAddress("https://issuer.example")); !errors.Is(err, auth.ErrDenied) ||
		!strings.Contains(err.Error(), "API server") {
		t.Errorf("the cluster's own address: %v", err)
	}
}

// writeToken writes a token of the controller's ServiceAccount.
func writeToken(t *testing.T, issuer *cloudtest.Issuer, file, audience string) {
	t.Helper()
	signed, err := issuer.Sign(issuer.Claims(testenv.ServiceAccount("tenant-a", "app"), []string{audience}, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(signed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The controller's own token comes from its file, as it is or as the way to
// another one.
func TestControllerToken(t *testing.T) {
	issuer, c := newIssuer(t)
	file := filepath.Join(t.TempDir(), "token")
	provider := &token.Provider{TokenFile: file}
	get := func(opts ...auth.Option) (auth.Token, error) {
		return auth.GetAccessToken(t.Context(), provider, append(opts, auth.WithAudiences("vault"), allowed)...)
	}
	if _, err := get(); !errors.Is(err, auth.ErrMisconfigured) || !strings.Contains(err.Error(), file) {
		t.Errorf("without the file: %v", err)
	}
	writeToken(t, issuer, file, "vault")
	if got, err := get(); err != nil || claims(t, got).Audience[0] != "vault" || issuer.TokenRequests() != 0 {
		t.Errorf("as it is: %v, %d requests, %v", got, issuer.TokenRequests(), err)
	}
	writeToken(t, issuer, file, "https://kubernetes.default.svc")
	if _, err := get(); !errors.Is(err, auth.ErrMisconfigured) || !strings.Contains(err.Error(), "WithClient") {
		t.Errorf("another audience, no client: %v", err)
	}
	if got, err := get(auth.WithClient(c)); err != nil || claims(t, got).Audience[0] != "vault" ||
		issuer.TokenRequests() != 1 {
		t.Errorf("another audience: %v, %d requests, %v", got, issuer.TokenRequests(), err)
	}
	if err := os.WriteFile(file, []byte("opaque-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := get(auth.WithClient(c)); !errors.Is(err, auth.ErrMisconfigured) ||
		strings.Contains(err.Error(), "opaque-secret") {
		t.Errorf("not a token: %v", err)
	}
}

func TestConformance(t *testing.T) {
	for mode, registry := range map[string]token.Registry{
		"bearer":   {Host: "registry.example"},
		"password": {Host: "registry.example", Username: "token"},
	} {
		t.Run(mode, func(t *testing.T) {
			_, c := newIssuer(t)
			authtest.RunConformance(t, authtest.Harness{
				New:        func(*testing.T) auth.Provider { return &token.Provider{Registries: []token.Registry{registry}} },
				Options:    []auth.Option{auth.WithAudiences("vault"), allowed},
				Fields:     map[string]any{"TokenFile": nil, "Registries": nil},
				NoRegions:  true,
				Client:     c,
				Good:       app,
				Other:      client.ObjectKey{Namespace: "tenant-a", Name: "second"},
				Cluster:    []auth.Option{auth.WithClusterAddress("https://cluster.example")},
				Repository: "registry.example/team/app",
				ForeignRepositories: []string{
					"registry.example.evil.example/team/app", "evil-registry.example/app", "registry.example:5000/app",
					"https://registry.example/app"},
				Secrets: func(t *testing.T, got auth.Token) []string {
					revealed, err := token.Reveal(got)
					if err != nil {
						t.Fatal(err)
					}
					return append(strings.Split(revealed, "."), revealed)
				},
			})
		})
	}
}

// A real API server accepts the token for its audience, knows whose it is, and
// ends it with the pod that it is bound to.
func TestRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t)
	c, namespace := cluster.Client(), cluster.Namespace(t)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"},
		Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, obj := range []client.Object{sa, pod} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	got, err := auth.GetAccessToken(t.Context(), &token.Provider{},
		auth.WithServiceAccount(client.ObjectKeyFromObject(sa), c),
		auth.WithOwner(cache.InvolvedObject{Namespace: namespace, Name: "b"}), auth.WithAudiences("vault"), allowed,
		auth.WithBoundObject(authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: pod.UID}))
	if err != nil {
		t.Fatal(err)
	}
	revealed, err := token.Reveal(got)
	if err != nil {
		t.Fatal(err)
	}
	for audience, want := range map[string]bool{"vault": true, "other": false} {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: revealed,
			Audiences: []string{audience}}}
		if err := c.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		status := review.Status
		if status.Authenticated != want || want && (status.User.Username != "system:serviceaccount:"+namespace+":app" ||
			status.User.Extra["authentication.kubernetes.io/pod-name"][0] != "pod") {
			t.Errorf("audience %s: %+v", audience, status)
		}
	}
}

// The controller's own token: one for each cluster, and never one that its
// receiver could use against the API server.
func TestControllerTokenForClusters(t *testing.T) {
	issuer, c := newIssuer(t)
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, issuer, file, issuer.URL())
	tokens := testenv.Cache(t)
	get := func(address string, opts ...auth.Option) (auth.Token, error) {
		return auth.GetAccessToken(t.Context(), &token.Provider{TokenFile: file},
			append(opts, auth.WithClient(c), auth.WithClusterAddress(address), auth.WithCache(tokens, object))...)
	}
	for address, audience := range map[string]string{
		"https://a.example": "https://a.example", "https://b.example": "https://b.example",
		// What is not a URL becomes one: the name of a service is not an
		// audience that a tenant may pick this way.
		"vault": "https://vault:443", "sts.amazonaws.com": "https://sts.amazonaws.com:443",
	} {
		if got, err := get(address); err != nil || claims(t, got).Audience[0] != audience {
			t.Errorf("%s: got %v, %v, want the audience %q", address, got, err, audience)
		}
	}
	for name, call := range map[string]func() (auth.Token, error){
		"the issuer":     func() (auth.Token, error) { return get(issuer.URL()) },
		"the API server": func() (auth.Token, error) { return get("https://kubernetes.default.svc") },
		"what the policy names": func() (auth.Token, error) {
			return get("https://c.example", auth.WithPolicy(auth.Policy{APIServerAudiences: []string{"https://c.example"}}))
		},
		"http":                   func() (auth.Token, error) { return get("http://a.example") },
		"an audience of its own": func() (auth.Token, error) { return get("https://a.example", auth.WithAudiences("vault")) },
	} {
		if got, err := call(); err == nil || strings.Contains(err.Error(), "eyJ") {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// The controller's own token goes to servers that the system's roots verify. A
// CA of the object does not count.
func TestControllerTokenForAnObjectsCertificateAuthority(t *testing.T) {
	issuer, c := newIssuer(t)
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, issuer, file, issuer.URL())
	cloud := testenv.Cloud(t)
	get := func(opts ...auth.Option) error {
		_, err := auth.GetRESTConfig(t.Context(), &token.Provider{TokenFile: file},
			append(opts, auth.WithClient(c), auth.WithClusterAddress("https://iam.example/pool"))...)
		return err
	}
	ca := auth.WithCAData(string(cloud.CA()))
	owner := auth.WithOwner(object)
	if err := get(owner); err != nil {
		t.Error(err)
	}
	if err := get(owner, ca); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("got %v", err)
	}
	if err := get(owner, ca, auth.WithPolicy(auth.Policy{AllowCluster: func(auth.ClusterRequest) bool {
		return true
	}})); err != nil {
		t.Error(err)
	}
}
