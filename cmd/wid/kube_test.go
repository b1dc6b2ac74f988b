package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
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
	w.tryOtherShells(t, file)
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

// tryOtherShells has kubectl run where variables are set for other plugins:
// they do not change what the kubeconfig means. Those of the cache count all
// the same.
func (w *kubeEnvironment) tryOtherShells(t *testing.T, file string) {
	t.Helper()
	before := w.tokenRequests(t)
	for _, variable := range []string{"WID_SERVICE_ACCOUNT=tenant-b/app", "WID_TOKEN_FILE=/nonexistent",
		"WID_TOKEN_STDIN=true", "WID_AUDIENCE=vault",
		"WID_SCOPE=x", "WID_PROVIDER=aws", "WID_ASSUME_ROLE=" + role("x"), "WID_IN_CLUSTER=true", "WID_ANNOTATION=a=b",
		"WID_TOKEN_LIFETIME=12m",
		"WID_PROXY_URL=http://127.0.0.1:1", "WID_STS_ENDPOINT=https://evil.example", "WID_BOUND_OBJECT=soon"} {
		r := w.exec(t, "", []string{"KUBECONFIG=" + file, variable}, "kubectl", "get", "namespaces", "-o", "name")
		if r.code != 0 || !strings.Contains(r.stdout, "namespace/kube-system") {
			t.Errorf("%s: %+v", variable, r)
		}
	}
	if n := w.tokenRequests(t) - before; n != 0 {
		t.Errorf("%d more tokens were requested", n)
	}
	r := w.exec(t, "", []string{"KUBECONFIG=" + file, "WID_CACHE_DIR=" + filepath.Join(w.home, "elsewhere")}, "kubectl",
		"get", "namespaces")
	if kept, err := filepath.Glob(filepath.Join(w.home, "elsewhere", "*.json")); r.code != 0 || err != nil ||
		len(kept) != 1 {
		t.Errorf("WID_CACHE_DIR: %+v, %q, %v", r, kept, err)
	}
}

// A kubeconfig for EKS: address and certificate authority come from AWS, and
// the bearer is one that EKS accepts.
func TestKubeconfigForEKS(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	const arn = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"
	w.cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: arn,
		Endpoint: "https://ABCDEF.gr7.eu-central-1.eks.amazonaws.com", CA: w.cluster.Config().CAData})
	w.cloud.AWS().SetEKSAccessEntry(arn, role("tenant-a"), cloudtest.EKSAccessEntry{})
	out := w.mustWid(t, "", append([]string{"kubeconfig", "--provider=aws", "--cluster=" + arn}, w.app()...)...)
	config, err := clientcmd.Load([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	cluster, exec := config.Clusters["wid"], config.AuthInfos["wid"].Exec
	if cluster.Server != "https://abcdef.gr7.eu-central-1.eks.amazonaws.com:443" ||
		string(cluster.CertificateAuthorityData) != string(w.cluster.Config().CAData) ||
		exec.Command != "wid" || !exec.ProvideClusterInfo || exec.InteractiveMode != "Never" {
		t.Fatalf("%+v %+v", cluster, exec)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		info := `{"apiVersion":"client.authentication.k8s.io/` + version +
			`","kind":"ExecCredential","spec":{"interactive":false,"cluster":{"server":"` + cluster.Server + `"}}}`
		r := w.exec(t, "", []string{"KUBERNETES_EXEC_INFO=" + info, "KUBECONFIG=/nonexistent"}, "wid", exec.Args...)
		var answer clientauthv1beta1.ExecCredential
		if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != 0 ||
			answer.APIVersion != "client.authentication.k8s.io/"+version || answer.Kind != "ExecCredential" {
			t.Fatalf("%v, %+v", err, r)
		}
		_, id, err := w.cloud.AWS().VerifyEKSToken(arn, answer.Status.Token)
		if left := time.Until(answer.Status.ExpirationTimestamp.Time); err != nil || id.RoleARN != role("tenant-a") ||
			left > 15*time.Minute || left < 10*time.Minute {
			t.Errorf("the bearer is of %+v for %s, %v", id, left, err)
		}
	}
	// The kubeconfig was changed to lead somewhere else.
	info :=
		`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://evil.example"}}}`
	if r := w.exec(t, "", []string{"KUBERNETES_EXEC_INFO=" + info}, "wid",
		exec.Args...); r.code != cli.ExitMisconfigured || r.stdout != "" ||
		!strings.Contains(r.stderr, "is not that of the cluster") {
		t.Errorf("for another server: %+v", r)
	}
}

// A kubeconfig works in a shell that has none of the variables of the one that
// it was written in.
func TestKubeconfigWithoutItsEnvironment(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	ca := filepath.Join(w.home, "prod-ca.crt")
	w.write(t, ca, string(w.cluster.Config().CAData))
	env := []string{"AWS_REGION=eu-central-1", "WID_KUBECONFIG=" + w.kubeconfig,
		"WID_SERVICE_ACCOUNT=" + w.namespace + "/app", "WID_SESSION_NAME_PREFIX=hub"}
	r := w.exec(t, "", env, "wid", "kubeconfig", "--provider=aws", "--cluster-address=https://prod.example",
		"--cluster-name=prod", "--cluster-ca-file="+ca)
	config, err := clientcmd.Load([]byte(r.stdout))
	if err != nil || r.code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	info :=
		`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://prod.example","certificate-authority-data":"` +
			base64.StdEncoding.EncodeToString(config.Clusters["wid"].CertificateAuthorityData) + `"}}}`
	env = []string{"KUBERNETES_EXEC_INFO=" + info, "KUBECONFIG=/nonexistent"}
	for _, v := range config.AuthInfos["wid"].Exec.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	r = w.exec(t, "", env, "wid", config.AuthInfos["wid"].Exec.Args...)
	var answer clientauthv1beta1.ExecCredential
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		t.Fatalf("%v, %+v", err, r)
	}
	w.cloud.AWS().SetEKSAccessEntry(prodARN, role("tenant-a"), cloudtest.EKSAccessEntry{})
	_, id, err := w.cloud.AWS().VerifyEKSToken(prodARN, answer.Status.Token)
	if err != nil || id.RoleARN != role("tenant-a") || id.SessionName != "hub="+w.namespace+".app" {
		t.Errorf("the bearer is of %+v, %v", id, err)
	}
}

// However many processes ask at once, one of them mints. What happens to the
// ServiceAccount takes effect nevertheless.
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
			t.Fatalf("%+v", r)
		}
	}
	if w.mints() != 1 || w.tokenRequests(t) != 1 {
		t.Errorf("%d exchanges, %d tokens", w.mints(), w.tokenRequests(t))
	}
	sa := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: w.namespace, Name: "app"}
	if err := w.cluster.Client().Get(t.Context(), key, sa); err != nil {
		t.Fatal(err)
	}
	sa.Annotations[aws.RoleARNAnnotation] = role("tenant-b")
	if err := w.cluster.Client().Update(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	if r := w.wid(t, "", args...); r.code != cli.ExitDenied || r.stdout != "" {
		t.Errorf("with another role: %+v", r)
	}
	if err := w.cluster.Client().Delete(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	if r := w.wid(t, "", args...); r.code != cli.ExitMisconfigured || r.stdout != "" ||
		!strings.Contains(r.stderr, "create it, or correct the name") {
		t.Errorf("after it was deleted: %+v", r)
	}
}

// Whoever may not ask the cluster is told what is missing, also if somebody
// else's credential is on disk.
func TestRefusalsOfTheCluster(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	w.mustWid(t, "", append([]string{"credential-process"}, w.app()...)...)
	for name, tc := range map[string]struct {
		rules []rbacv1.PolicyRule
		want  string
	}{
		"nothing": {nil, "verb get on serviceaccounts"},
		"reading": {[]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
			Verbs: []string{"get"}}}, "verb create on serviceaccounts/token"},
	} {
		user := w.cluster.User(t, "wid-"+name, w.namespace, tc.rules...)
		file := filepath.Join(w.home, name+".yaml")
		w.write(t, file, kubeconfigOf(t, user.Host, user.CAData, user.CertData, user.KeyData, ""))
		r := w.wid(t, "", "credential-process", "--kubeconfig="+file, "--service-account="+w.namespace+"/app",
			"--region=eu-central-1")
		if r.code != cli.ExitDenied || r.stdout != "" || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// A login that has ended.
	admin := w.cluster.Config()
	file := filepath.Join(w.home, "expired.yaml")
	w.write(t, file, kubeconfigOf(t, admin.Host, admin.CAData, nil, nil, "an-old-token"))
	r := w.wid(t, "", "credential-process", "--kubeconfig="+file, "--service-account="+w.namespace+"/app",
		"--region=eu-central-1")
	if r.code != cli.ExitUnavailable || r.stdout != "" || !strings.Contains(r.stderr, "kubeconfig") {
		t.Errorf("expired login: %+v", r)
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
