package github_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/github"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestPagesShowCompiledCode(t *testing.T) {
	page := document.Read(t, "docs/providers.md")
	page.Shows("example_test.go", "// GitHubApp makes")
	page.Shows("example_test.go", "// SignInKMS signs")
	page = document.Read(t, "docs/workload-identity.md")
	page.Shows("example_test.go", "// AsRole makes")
	page.Shows("example_test.go", "// NewProviders are")
	if _, err := AsRole(&aws.Provider{}); err != nil {
		t.Error(err)
	}
	if set, err := NewProviders(newEnvironment(t).provider()); err != nil || len(set.Names()) != 2 {
		t.Errorf("got %v, %v", set, err)
	}
}

const (
	pool    = "projects/123456789012/locations/global/workloadIdentityPools/east"
	keyRing = "projects/p/locations/global/keyRings/apps"
)

// serveKMS is a KMS whose key only some principals may use. It returns the
// subjects that asked.
func (w *environment) serveKMS(t *testing.T, users ...string) *[]string {
	t.Helper()
	w.Cloud.GCP().SetWorkloadIdentityProvider(pool+"/providers/east",
		cloudtest.WorkloadIdentityProvider{Issuer: w.Issuer.URL(), Fetch: w.Issuer.HTTPClient()})
	asked := &[]string{}
	w.Cloud.Handle("cloudkms.googleapis.com", http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		var body struct {
			Digest struct {
				SHA256 []byte `json:"sha256"`
			} `json:"digest"`
		}
		id, ok := w.Cloud.GCP().Identity(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		*asked = append(*asked, id.Subject)
		if !ok || !slices.Contains(users, id.Subject) ||
			r.URL.Path != "/v1/"+keyRing+"/cryptoKeys/tenant-a/cryptoKeyVersions/1:asymmetricSign" ||
			json.NewDecoder(r.Body).Decode(&body) != nil {
			http.Error(out, "permission denied", http.StatusForbidden)
			return
		}
		signature, err := github.SignWith(w.key)(r.Context(), nil, body.Digest.SHA256)
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(out).Encode(map[string][]byte{"signature": signature}) // a client that has gone needs no answer
	}))
	return asked
}

// The key in a KMS is used with the tenant's own identity there, and only for
// an exchange.
func TestKeyInKMS(t *testing.T) {
	w, tokens := newEnvironment(t), testenv.Cache(t)
	var accounts []*corev1.ServiceAccount
	for _, namespace := range []string{"tenant-a", "tenant-b"} {
		accounts = append(accounts, testenv.ServiceAccount(namespace, "app", gcp.WorkloadIdentityProviderAnnotation,
			pool+"/providers/east"))
	}
	w.Client = w.Issuer.Client(accounts[0], accounts[1])
	asked := w.serveKMS(t, "system:serviceaccount:tenant-a:app")
	p := w.provider()
	p.AppID = "the Grant names another one"
	p.Grant = func(sa *corev1.ServiceAccount) (github.Grant, error) {
		g, err := grantTo(sa)
		g.AppID = appID
		return g, err
	}
	p.Sign = SignInKMS(&gcp.Provider{}, w.Client, tokens, keyRing, w.Cloud.Client())
	for range 2 {
		if _, err := get(t.Context(), p, w.options("tenant-a", testenv.WithCache(tokens, "tenant-a"))...); err != nil {
			t.Fatal(err)
		}
	}
	_, err := get(t.Context(), p, w.options("tenant-b")...)
	testenv.CheckError(t, err, auth.ErrUnavailable, "cannot be signed", "403")
	if want := []string{"system:serviceaccount:tenant-a:app", "system:serviceaccount:tenant-b:app"}; !slices.Equal(*asked,
		want) {
		t.Errorf("the KMS was asked by %q, want %q", *asked, want)
	}
}
