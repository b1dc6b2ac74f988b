package interop

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	account   = "123456789012"
	roleARN   = "arn:aws:iam::" + account + ":role/app"
	prodARN   = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"
	namespace = "tenant-a"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

// environment is a hub with an inventory, and a cluster in it that accepts the
// hub's tokens and those of EKS.
type environment struct {
	hub, spoke *kubetest.Cluster
	inventory  client.Client
	address    string // of the spoke, which is the audience of its tokens
	cloud      *cloudtest.Cloud
	wid, home  string
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	kubetest.Assets(t) // skips before wid is built
	w := &environment{cloud: testenv.Cloud(t), home: t.TempDir()}
	w.hub = kubetest.Start(t)
	w.build(t)
	w.startSpoke(t)
	w.fillHub(t)
	w.setCloud(t)
	return w
}

func (w *environment) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *environment) write(t *testing.T, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(w.home, name)
	w.must(t, os.WriteFile(path, content, 0o600))
	return path
}

func (w *environment) build(t *testing.T) {
	t.Helper()
	w.wid = filepath.Join(w.home, "wid")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", w.wid,
		"./cmd/wid") //nolint:gosec // the program under test
	cmd.Dir = filepath.Join("..", "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// startSpoke has the API server listen behind an address that is known before
// it starts.
func (w *environment) startSpoke(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	w.address = "https://" + listener.Addr().String()
	webhook := httptest.NewServer(http.HandlerFunc(w.review))
	t.Cleanup(webhook.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: webhook.URL},
		&clientcmdapi.Context{Cluster: "c"}, "c"
	content, err := clientcmd.Write(*config)
	w.must(t, err)
	w.spoke = kubetest.StartNew(t,
		kubetest.Flag{Name: "oidc-issuer-url", Value: w.hub.IssuerURL()},
		kubetest.Flag{Name: "oidc-client-id", Value: w.address},
		kubetest.Flag{Name: "oidc-ca-file", Value: w.write(t, "hub-ca.crt", w.hub.Config().CAData)},
		kubetest.Flag{Name: "oidc-signing-algs", Value: "ES256,RS256"},
		kubetest.Flag{Name: "oidc-username-prefix", Value: "hub:"},
		kubetest.Flag{Name: "authentication-token-webhook-config-file", Value: w.write(t, "webhook.yaml", content)},
		kubetest.Flag{Name: "authentication-token-webhook-version", Value: "v1"})
	server, err := url.Parse(w.spoke.Config().Host)
	w.must(t, err)
	go forward(listener, server.Host)
	for _, user := range []string{"hub:system:serviceaccount:" + namespace + ":app", roleARN} {
		w.must(t,
			w.spoke.Client().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "app-"},
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}))
	}
}

// forward ends with the listener.
func forward(listener net.Listener, to string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = from.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{from, server}, {server, from}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1]) // it ends with the connection
				_ = pair[0].Close()
			}()
		}
	}
}

// review asks the cloud for the role of a bearer token, as EKS does.
func (w *environment) review(rw http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	_, id, err := w.cloud.AWS().VerifyEKSToken(prodARN, review.Spec.Token)
	review.Spec = authenticationv1.TokenReviewSpec{}
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: err == nil,
		User: authenticationv1.UserInfo{Username: id.RoleARN}}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(review) // the API server notices
}

// fillHub installs the inventory's CustomResourceDefinitions and a
// ServiceAccount.
func (w *environment) fillHub(t *testing.T) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"sigs.k8s.io/cluster-inventory-api").Output()
	w.must(t, err)
	_, err = envtest.InstallCRDs(w.hub.Config(),
		envtest.CRDInstallOptions{Paths: []string{filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "bases")}})
	w.must(t, err)
	known := runtime.NewScheme()
	w.must(t, scheme.AddToScheme(known))
	w.must(t, v1alpha1.AddToScheme(known))
	w.inventory, err = client.New(w.hub.Config(), client.Options{Scheme: known})
	w.must(t, err)
	w.must(t, w.inventory.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	for _, name := range []string{"app", "other"} {
		w.must(t,
			w.inventory.Create(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
					Annotations: map[string]string{aws.RoleARNAnnotation: roleARN}}}))
	}
}

// setCloud has wid, as a child of this process, reach the simulated cloud.
func (w *environment) setCloud(t *testing.T) {
	t.Helper()
	w.cloud.AWS().AddOIDCProvider(account, w.hub.IssuerURL(), w.hub.IssuerClient(t), aws.DefaultAudience)
	w.cloud.AWS().SetRole(roleARN,
		cloudtest.Trust{Issuer: w.hub.IssuerURL(), Subjects: []string{"system:serviceaccount:" + namespace + ":app"}})
	w.cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: prodARN, Endpoint: w.address, CA: w.spoke.Config().CAData})
	w.cloud.AWS().SetEKSAccessEntry(prodARN, roleARN, cloudtest.EKSAccessEntry{})
	env, err := w.cloud.ProxyEnv(w.home)
	w.must(t, err)
	for _, entry := range append(env, "HOME="+w.home, "XDG_CACHE_HOME=", "KUBECONFIG=/nonexistent",
		"AWS_EC2_METADATA_DISABLED=true") {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
}

// cluster is the spoke as an author describes it.
func (w *environment) cluster(extensions ...clientcmdv1.NamedExtension) clientcmdv1.Cluster {
	return clientcmdv1.Cluster{Server: w.address, CertificateAuthorityData: w.spoke.Config().CAData,
		Extensions: extensions}
}

func extension(name, content string) clientcmdv1.NamedExtension {
	return clientcmdv1.NamedExtension{Name: name, Extension: runtime.RawExtension{Raw: []byte(content)}}
}

func clusterName(name string) clientcmdv1.NamedExtension {
	return extension("client.authentication.k8s.io/exec", `{"clusterName":"`+name+`"}`)
}

// eavesdropper is the server of a hostile author. It keeps the tokens that it
// gets.
type eavesdropper struct {
	*httptest.Server
	mu      sync.Mutex
	bearers []string
}

func newEavesdropper(t *testing.T) *eavesdropper {
	t.Helper()
	e := &eavesdropper{}
	e.Server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); bearer != "" {
			e.bearers = append(e.bearers, bearer)
		}
		http.NotFound(rw, r)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *eavesdropper) heard() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bearers
}
