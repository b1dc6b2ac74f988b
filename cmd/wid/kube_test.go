package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// kubeEnvironment is an environment whose clouds trust a real cluster, in which
// a ServiceAccount app has annotations for all of them.
type kubeEnvironment struct {
	*environment
	cluster    *kubetest.Cluster
	namespace  string
	kubeconfig string // of an administrator
}

func newKubeEnvironment(t *testing.T) *kubeEnvironment {
	t.Helper()
	cluster := kubetest.Start(t)
	w := &kubeEnvironment{newEnvironment(t), cluster, cluster.Namespace(t), ""}
	w.kubeconfig = cluster.Kubeconfig(t)
	w.cloud.AWS().AddOIDCProvider(account, cluster.IssuerURL(), cluster.IssuerClient(t), aws.DefaultAudience)
	w.cloud.AWS().SetRole(role("tenant-a"),
		cloudtest.Trust{Issuer: cluster.IssuerURL(), Subjects: []string{"system:serviceaccount:" + w.namespace + ":app"}})
	w.create(t, "app", annotations())
	return w
}

func (w *kubeEnvironment) create(t *testing.T, name string, annotations map[string]string) {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name,
		Annotations: annotations}}
	if err := w.cluster.Client().Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
}

func (w *kubeEnvironment) app() []string {
	return []string{"--kubeconfig=" + w.kubeconfig, "--service-account=" + w.namespace + "/app", "--region=eu-central-1"}
}

// tokenRequests counts the tokens that the administrator has asked for.
func (w *kubeEnvironment) tokenRequests(t *testing.T) (n int) {
	t.Helper()
	for _, r := range w.cluster.Audit(t, "kubetest-admin") {
		if r.Subresource == "token" && r.Namespace == w.namespace {
			n++
		}
	}
	return n
}

// remoteCluster is a second cluster that trusts the issuer of the first one for
// its own address.
func remoteCluster(t *testing.T, w *kubeEnvironment, audience, user string) *kubetest.Cluster {
	t.Helper()
	caFile := filepath.Join(w.home, "issuer-ca.crt")
	w.write(t, caFile, string(w.cluster.Config().CAData))
	remote := kubetest.StartNew(t,
		kubetest.Flag{Name: "oidc-issuer-url", Value: w.cluster.IssuerURL()},
		kubetest.Flag{Name: "oidc-client-id", Value: audience},
		kubetest.Flag{Name: "oidc-ca-file", Value: caFile},
		kubetest.Flag{Name: "oidc-signing-algs", Value: "ES256,RS256"},
		kubetest.Flag{Name: "oidc-username-prefix", Value: "hub:"})
	for _, obj := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "namespaces"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "namespaces"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "namespaces"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "hub:" + user}}},
	} {
		if err := remote.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	return remote
}

// eventually tries until the API server has the issuer's keys, which it gets in
// the background.
func eventually(t *testing.T, try func() result) result {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		r := try()
		if r.code == 0 || time.Now().After(end) {
			return r
		}
	}
}

// kubectl lists the namespaces of a real API server with what wid kubeconfig
// has written.
func TestKubectl(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	const audience = "https://remote.example"
	remote := remoteCluster(t, w, audience, "system:serviceaccount:"+w.namespace+":app")
	ca := filepath.Join(w.home, "remote-ca.crt")
	w.write(t, ca, string(remote.Config().CAData))
	file := filepath.Join(w.home, "remote.yaml")
	r := w.wid(t, "",
		append([]string{"kubeconfig", "--provider=generic", "--audience=" + audience,
			"--cluster-address=" + remote.Config().Host, "--cluster-ca-file=" + ca, "-f", file}, w.app()...)...)
	if r.code != 0 || r.stdout != "" {
		t.Fatalf("%+v", r)
	}
	content, err := os.ReadFile(file)
	if info, statErr := os.Stat(file); err != nil || statErr != nil || info.Mode().Perm() != 0o600 ||
		strings.Contains(string(content), "eyJ") {
		t.Errorf("%v, %v", err, statErr)
	}
	before := w.tokenRequests(t)
	list := func() result {
		return w.exec(t, "", []string{"KUBECONFIG=" + file}, "kubectl", "get", "namespaces", "-o", "name")
	}
	if r := eventually(t, list); r.code != 0 || !strings.Contains(r.stdout, "namespace/kube-system") {
		t.Fatalf("%+v", r)
	}
	for range 3 {
		if r := list(); r.code != 0 {
			t.Errorf("%+v", r)
		}
	}
	if n := w.tokenRequests(t) - before; n != 1 {
		t.Errorf("%d tokens were requested", n)
	}
	if r := w.exec(t, "", []string{"KUBECONFIG=" + file}, "kubectl", "get", "secrets"); r.code == 0 ||
		!strings.Contains(r.stderr, `"hub:system:serviceaccount:`+w.namespace+`:app" cannot list`) {
		t.Errorf("it may do more than it was granted: %+v", r)
	}
	// Deleting the ServiceAccount ends the access with the next call, though
	// the token is still good.
	if err := w.cluster.Client().Delete(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app"}}); err != nil {
		t.Fatal(err)
	}
	if r := list(); r.code == 0 || !strings.Contains(r.stderr, "not found") {
		t.Errorf("after deleting the ServiceAccount: %+v", r)
	}
}

// However many processes ask at once, one of them mints.
func TestManyCallsMintOnce(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	args := append([]string{"credential-process"}, w.app()...)
	var group sync.WaitGroup
	answers := make([]result, 12)
	for i := range answers {
		group.Go(func() { answers[i] = w.wid(t, "", args...) })
	}
	group.Wait()
	for _, r := range answers {
		if r.code != 0 || r.stdout != answers[0].stdout {
			t.Fatalf("got %+v, want what the first one got", r)
		}
	}
	if w.mints() != 1 || w.tokenRequests(t) != 1 {
		t.Errorf("got %d exchanges and %d tokens, want one", w.mints(), w.tokenRequests(t))
	}
}

// kubeconfigOf is a kubeconfig for one cluster and user.
func kubeconfigOf(t *testing.T, server string, ca, cert, key []byte, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key, Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
