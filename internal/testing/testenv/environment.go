package testenv

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// Environment is a cluster with ServiceAccounts, and a cloud. The tests of a
// provider embed it and have the cloud trust the issuer of the cluster.
type Environment struct {
	Issuer *cloudtest.Issuer
	Cloud  *cloudtest.Cloud
	Client *cloudtest.Client
}

// New returns an environment with the objects in its cluster.
func New(t testing.TB, objects ...client.Object) *Environment {
	t.Helper()
	issuer := Issuer(t)
	return &Environment{Issuer: issuer, Cloud: Cloud(t), Client: issuer.Client(objects...)}
}

// Object is the owner of calls for ServiceAccounts of its namespace.
func Object(namespace string) cache.InvolvedObject {
	return cache.InvolvedObject{Kind: "Bucket", Namespace: namespace, Name: "b", Operation: "reconcile"}
}

// Owner makes Object the owner of a call.
func Owner(namespace string) auth.Option { return auth.WithOwner(Object(namespace)) }

// WithCache gives a call a cache, and an owner.
func WithCache(tokens *cache.TokenCache, namespace string) auth.Option {
	return auth.WithCache(tokens, Object(namespace))
}

// Cached gives a call a cache of its own, and an owner.
func Cached(t testing.TB, namespace string) auth.Option {
	t.Helper()
	return WithCache(Cache(t), namespace)
}

// Subject is what the token of a ServiceAccount is for.
func Subject(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }

// Token returns a token for a ServiceAccount that is valid for an hour, after
// change has edited its claims.
func (e *Environment) Token(t testing.TB, namespace, name, audience string,
	change ...func(claims map[string]any)) string {
	t.Helper()
	claims := e.Issuer.Claims(ServiceAccount(namespace, name), []string{audience}, time.Hour)
	for _, edit := range change {
		if edit != nil {
			edit(claims)
		}
	}
	token, err := e.Issuer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TokenFile writes such a token, as a kubelet mounts it into a pod.
func (e *Environment) TokenFile(t testing.TB, namespace, name, audience string) string {
	t.Helper()
	return WriteFile(t, e.Token(t, namespace, name, audience))
}

// WriteFile writes a file of the test's own and returns its name.
func WriteFile(t testing.TB, content string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Options returns the options of a call for a ServiceAccount, on behalf of an
// object of its namespace.
func (e *Environment) Options(namespace, name string, more ...auth.Option) []auth.Option {
	return append([]auth.Option{
		auth.WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: name}, e.Client),
		auth.WithOwner(Object(namespace)), auth.WithHTTPClient(e.Cloud.Client()),
	}, more...)
}

// Requests returns the number of requests to the cloud, and for tokens of
// ServiceAccounts.
func (e *Environment) Requests() int { return e.Cloud.Calls("", "") + e.Issuer.TokenRequests() }

// ExpectNone fails the test if requests were made.
func ExpectNone(t testing.TB, requests int) {
	t.Helper()
	if requests != 0 {
		t.Errorf("%d requests were made, want none", requests)
	}
}

// Break is the field of that name of an [authtest.Harness]. The whole cloud
// fails.
func (e *Environment) Break(t *testing.T, how provider.Reason) {
	t.Helper()
	t.Cleanup(e.Cloud.AddFault(map[provider.Reason]cloudtest.Fault{
		auth.ErrThrottled:   {Status: 429, Code: "TooManyRequests", Message: "slow down", RetryAfter: "7"},
		auth.ErrUnavailable: {Status: 503, Code: "ServiceUnavailable"},
		authtest.Hang:       {Hang: true},
	}[how]))
}
