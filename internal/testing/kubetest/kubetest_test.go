package kubetest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

// A token of the cluster can be verified with what the cluster publishes to everyone.
func TestIssuer(t *testing.T) {
	cluster := kubetest.Start(t)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(t), Name: "app"}}
	if err := cluster.Client().Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"a"}}}
	if err := cluster.Client().SubResource("token").Create(t.Context(), sa, request); err != nil {
		t.Fatal(err)
	}
	keys := keysOf(t, cluster)
	token, err := jwt.ParseSigned(request.Status.Token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var claims jwt.Claims
	if err := token.Claims(keys, &claims); err != nil || claims.Issuer != cluster.IssuerURL() ||
		claims.Subject != "system:serviceaccount:"+sa.Namespace+":app" {
		t.Errorf("claims %+v, %v", claims, err)
	}
}

// keysOf returns what the cluster publishes.
func keysOf(t *testing.T, cluster *kubetest.Cluster) (keys jose.JSONWebKeySet) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cluster.IssuerURL()+"/openid/v1/jwks", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cluster.IssuerClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if err := json.NewDecoder(resp.Body).Decode(&keys); err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestUserAndAudit(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	const name = "kubetest-reader"
	config := cluster.User(t, name, namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list"}})
	reader, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.List(t.Context(), &corev1.ServiceAccountList{}, client.InNamespace(namespace)); err != nil {
		t.Error(err)
	}
	if err := reader.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace)); !apierrors.IsForbidden(err) {
		t.Errorf("reading secrets: %v", err)
	}
	var listed []kubetest.Request
	for _, r := range cluster.Audit(t, name) {
		if r.Verb == "list" {
			listed = append(listed, r)
		}
	}
	if len(listed) != 2 || listed[0].Resource != "serviceaccounts" || listed[0].Code != 200 || listed[1].Code != 403 || listed[1].Namespace != namespace {
		t.Errorf("audit: %+v", listed)
	}
}

// The API server takes what kube-controller-manager has signed, also after a restart.
func TestControllerManager(t *testing.T) {
	cluster := kubetest.StartNew(t)
	cluster.ControllerManager(t, "csrsigning")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "someone"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kubetest-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	c := cluster.Client()
	if err := c.Create(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	if err := c.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); len(csr.Status.Certificate) == 0; <-tick.C {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("not signed: %+v", csr.Status)
		}
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(cluster.Config())
	config.CertData, config.KeyData = csr.Status.Certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	user := func() string {
		own, err := client.New(config, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		review := &authenticationv1.SelfSubjectReview{}
		if err := own.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		return review.Status.UserInfo.Username
	}
	if got := user(); got != "someone" {
		t.Errorf("authenticated as %q", got)
	}
	cluster.Restart(t, nil)
	if got := user(); got != "someone" {
		t.Errorf("authenticated after a restart as %q", got)
	}
}

func TestTwoClusters(t *testing.T) {
	one, two := kubetest.Start(t), kubetest.StartNew(t)
	if one.IssuerURL() == two.IssuerURL() {
		t.Error("two clusters have one issuer")
	}
	var namespaces corev1.NamespaceList
	if err := two.Client().List(t.Context(), &namespaces); err != nil || !slices.ContainsFunc(namespaces.Items, func(n corev1.Namespace) bool { return n.Name == "kube-public" }) {
		t.Errorf("namespaces %d, %v", len(namespaces.Items), err)
	}
}
