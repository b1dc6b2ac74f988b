package issuer_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// rotated is a cluster whose signing keys a test changes, and a cloud that reads what is published.
type rotated struct {
	*testing.T
	cluster *kubetest.Cluster
	store   *memory
	p       *issuer.Publisher
	account *corev1.ServiceAccount
	dir     string
}

func newRotated(t *testing.T) *rotated {
	t.Helper()
	r := &rotated{T: t, cluster: kubetest.StartNew(t), store: newMemory(), dir: t.TempDir()}
	r.p = &issuer.Publisher{Cluster: r.cluster.Config(), Issuer: r.cluster.IssuerURL(), Store: r.store}
	r.account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster.Namespace(t), Name: "app"}}
	if err := r.cluster.Client().Create(t.Context(), r.account); err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r.writeKey("a", rsaKey, rsaKey.Public())
	r.writeKey("b", ecKey, ecKey.Public())
	return r
}

func (r *rotated) path(file string) string { return filepath.Join(r.dir, file) }

// writeKey writes NAME.key for signing and NAME.pub for verifying.
func (r *rotated) writeKey(name string, private, public any) {
	r.Helper()
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		r.Fatal(err)
	}
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		r.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".key": {Type: "PRIVATE KEY", Bytes: privateDER}, ".pub": {Type: "PUBLIC KEY", Bytes: publicDER}} {
		if err := os.WriteFile(r.path(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			r.Fatal(err)
		}
	}
}

// restart starts the API server with another signing key and other keys that it shows.
func (r *rotated) restart(signing string, shown ...string) {
	r.Helper()
	var files []string
	for _, name := range shown {
		files = append(files, r.path(name+".pub"))
	}
	r.cluster.APIServer().Configure().Set("service-account-signing-key-file", r.path(signing+".key")).Set("service-account-key-file", files...)
	r.cluster.Restart(r.T, nil)
}

func (r *rotated) token(audiences ...string) string {
	r.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if err := r.cluster.Client().SubResource("token").Create(r.Context(), r.account, request); err != nil {
		r.Fatal(err)
	}
	return request.Status.Token
}

// accepted reports whether the API server accepts its own token.
func (r *rotated) accepted(token string) bool {
	r.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := r.cluster.Client().Create(r.Context(), review); err != nil {
		r.Fatal(err)
	}
	return review.Status.Authenticated
}

// cloud returns what a cloud knows that reads the documents now, and keeps them.
func (r *rotated) cloud() func(token string) bool {
	r.Helper()
	return cloudOf(r.T, r.store)
}

func cloudOf(t *testing.T, store *memory) func(token string) bool {
	t.Helper()
	var discovery struct{ Issuer string }
	var keys jose.JSONWebKeySet
	for path, to := range map[string]any{issuer.DiscoveryFile: &discovery, issuer.KeysFile: &keys} {
		content, _, err := store.Read(t.Context(), path)
		if err == nil {
			err = json.Unmarshal(content, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return func(token string) bool {
		parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		claims := jwt.Claims{}
		return parsed.Claims(keys, &claims) == nil && claims.Issuer == discovery.Issuer
	}
}

func TestRotationOfAnAPIServer(t *testing.T) {
	r := newRotated(t)
	const audience = "sts.amazonaws.com"
	verifies := func(step string, cloud func(string) bool, tokens ...string) {
		t.Helper()
		for i, token := range tokens {
			if !cloud(token) {
				t.Errorf("%s: token %d does not verify", step, i)
			}
		}
	}

	r.restart("a", "a")
	mustPublish(t, r.p)
	first := r.token(audience)
	verifies("before", r.cloud(), first)

	r.restart("a", "a", "b")
	if got := mustPublish(t, r.p); len(got.Added) != 1 || len(got.Removed) != 0 {
		t.Errorf("the new key is shown: %+v", got)
	}
	cached := r.cloud() // what the clouds have read when they waited
	r.restart("b", "a", "b")
	second := r.token(audience)
	verifies("signing is switched", cached, first, second)
	if got := mustPublish(t, r.p); got.Written != nil {
		t.Errorf("signing is switched: wrote %q", got.Written)
	}

	r.restart("b", "b")
	if got := mustPublish(t, r.p); len(got.Leaving) != 1 || len(got.Removed) != 0 {
		t.Errorf("the old key is gone: %+v", got)
	}
	verifies("the old key is gone", r.cloud(), first, second)

	content, version, err := r.store.Read(t.Context(), issuer.RecordFile)
	if err != nil {
		t.Fatal(err)
	}
	aged := bytes.Replace(content, []byte(`"seconds":0`), []byte(`"seconds":86400`), 1)
	if err := r.store.Write(t.Context(), issuer.RecordFile, aged, version); err != nil {
		t.Fatal(err)
	}
	if got := mustPublish(t, r.p); len(got.Removed) != 1 {
		t.Errorf("a day later: %+v", got)
	}
	if cloud := r.cloud(); cloud(first) || !cloud(second) {
		t.Errorf("a day later: first verifies: %t, second: %t", cloud(first), cloud(second))
	}

	// The wrong order: a key signs before it is published.
	r.restart("a", "a")
	third := r.token(audience)
	if r.cloud()(third) {
		t.Error("the wrong order loses no token, so that this test tests nothing")
	}
	mustPublish(t, r.p)
	verifies("the wrong order is mended", r.cloud(), second, third)
	if !r.accepted(r.token()) || r.accepted(second) {
		t.Error("the API server accepts a token whose key it no longer has")
	}
}

func TestMovingAnIssuer(t *testing.T) {
	r := newRotated(t)
	const next = "https://oidc.example.com/cluster-1"
	former := r.cluster.IssuerURL()
	flags := r.cluster.APIServer().Configure()
	mustPublish(t, r.p)
	own, external := r.token(), r.token("sts.amazonaws.com")

	flags.Set("service-account-issuer", next, former)
	r.cluster.Restart(t, nil)
	moved := newMemory()
	mustPublish(t, &issuer.Publisher{Cluster: r.cluster.Config(), Issuer: next, Store: moved})
	if got := mustPublish(t, r.p); got.Written != nil {
		t.Errorf("the former issuer: wrote %q", got.Written)
	}
	later := r.token("sts.amazonaws.com")
	old, current := r.cloud(), cloudOf(t, moved)
	if !old(external) || !current(later) || old(later) || current(external) {
		t.Errorf("old issuer verifies old token: %t, new: %t; new issuer verifies new token: %t, old: %t", old(external), old(later), current(later), current(external))
	}
	if !r.accepted(own) || !r.accepted(r.token()) {
		t.Error("the API server refuses a token of the former or the new issuer")
	}
	if got := shownIssuer(t, r.cluster); got != next {
		t.Errorf("the API server's discovery document names %q, want the first issuer alone", got)
	}
	if _, err := (&issuer.Publisher{Cluster: r.cluster.Config(), Issuer: next, Store: r.store}).Publish(t.Context()); err == nil {
		t.Error("the new issuer was published over the former one")
	}

	// The former issuer is missing in an explicit list of audiences.
	flags.Set("api-audiences", next)
	r.cluster.Restart(t, nil)
	if r.accepted(own) {
		t.Error("a token for the former issuer is accepted")
	}
	flags.Set("api-audiences", next+","+former)
	r.cluster.Restart(t, nil)
	if !r.accepted(own) || !r.accepted(r.token()) {
		t.Error("both issuers are audiences, but a token is refused")
	}
}

func shownIssuer(t *testing.T, cluster *kubetest.Cluster) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cluster.IssuerURL()+"/"+issuer.DiscoveryFile, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cluster.IssuerClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var document struct{ Issuer string }
	if err := json.NewDecoder(resp.Body).Decode(&document); err != nil {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return document.Issuer
}
