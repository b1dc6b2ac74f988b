package credentials

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	account      = "123456789012"
	registryHost = account + ".dkr.ecr.eu-central-1.amazonaws.com"
	gitHost      = "git-codecommit.eu-central-1.amazonaws.com"
	azureClient  = "11111111-2222-4333-8444-555555555555"
	gcpProvider  = "projects/123456789012/locations/global/workloadIdentityPools/east/providers/east"
	gcpAudience  = "//iam.googleapis.com/" + gcpProvider
	subjectOfApp = "system:serviceaccount:tenant-a:app"
	principal    = "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/east/subject/" +
		subjectOfApp
)

func role(name string) string { return "arn:aws:iam::" + account + ":role/" + name }

// environment is a cloud that trusts an issuer for the ServiceAccount app of
// tenant A.
type environment struct {
	t      *testing.T
	cloud  *cloudtest.Cloud
	issuer *cloudtest.Issuer
	app    *corev1.ServiceAccount
	dir    string
	kept   string // the directory of the cache
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{t: t, cloud: testenv.Cloud(t), issuer: testenv.Issuer(t), dir: t.TempDir()}
	w.app = testenv.ServiceAccount("tenant-a", "app", aws.RoleARNAnnotation, role("tenant-a"),
		azure.ClientIDAnnotation, azureClient, azure.TenantIDAnnotation, azureTenant,
		gcp.WorkloadIdentityProviderAnnotation, gcpProvider)
	w.kept = filepath.Join(w.dir, "kept")
	w.app.UID = "0b7c4a4e-0000-4000-8000-000000000001"
	issuer, fetch := w.issuer.URL(), w.issuer.HTTPClient()
	w.cloud.AWS().AddOIDCProvider(account, issuer, fetch, aws.DefaultAudience)
	w.cloud.AWS().SetRole(role("tenant-a"), cloudtest.Trust{Issuer: issuer, Subjects: []string{subjectOfApp}})
	w.cloud.Azure().AddFederatedCredential(azureTenant, azureClient, cloudtest.FederatedCredential{Issuer: issuer,
		Subject: subjectOfApp, Audience: azure.DefaultAudience, Fetch: fetch})
	w.cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
		cloudtest.WorkloadIdentityProvider{Issuer: issuer, Fetch: fetch})
	w.cloud.OAuth().AddIssuer(issuer, fetch, w.cloud.OAuth().TokenEndpoint())
	w.cloud.OAuth().AddGrant(cloudtest.OAuthGrant{Issuer: issuer, Subjects: []string{subjectOfApp}})
	return w
}

// result is what a command has left behind. The error is what main prints to
// standard error.
type result struct {
	stdout, stderr, err string
	code                int
}

// run runs a command in this process.
func (w *environment) run(stdin string, args ...string) (r result) {
	w.t.Helper()
	a := &App{HTTPClient: w.cloud.Client()}
	root := cli.Group("wid", "", append(a.NewPlugins(), a.NewToken(), a.NewExec(), a.NewKubeconfig())...)
	var stdout, stderr bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	if w.kept != "" {
		args = slices.Insert(slices.Clone(args), 1, "--cache-dir="+w.kept)
	}
	root.SetArgs(args)
	cli.Finish(root)
	err := root.ExecuteContext(w.t.Context())
	if err != nil {
		r.err, r.code = err.Error(), cli.ExitCode(w.t.Context(), err)
	}
	r.stdout, r.stderr = stdout.String(), stderr.String()
	return r
}

// must is for calls that work and say nothing on standard error.
func (w *environment) must(stdin string, args ...string) string {
	w.t.Helper()
	r := w.run(stdin, args...)
	if r.code != 0 || r.stderr != "" {
		w.t.Fatalf("wid %q: got %+v, want success", args, r)
	}
	return r.stdout
}

// revealed are the values of wid token.
func (w *environment) revealed(args ...string) (values map[string]string, life time.Duration) {
	w.t.Helper()
	var got struct {
		Expires time.Time
		Values  map[string]string
	}
	out := w.must("", append([]string{"token", "-o=json", "--reveal"}, args...)...)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		w.t.Fatal(err)
	}
	return got.Values, time.Until(got.Expires)
}

func (w *environment) write(name, content string) (path string) {
	w.t.Helper()
	path = filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *environment) jwt(audiences []string, life time.Duration) string {
	token, err := w.issuer.Sign(w.issuer.Claims(w.app, audiences, life))
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// tokenFile is the flag for a file with a token of app.
func (w *environment) tokenFile(audience string) string {
	w.t.Helper()
	name := strings.NewReplacer("/", "-", ":", "-").Replace(audience) + ".jwt"
	return "--token-file=" + w.write(name, w.jwt([]string{audience}, time.Hour))
}

// annotationFlags are the annotations of app, all or those with a prefix.
func (w *environment) annotationFlags(prefix string) (flags []string) {
	for _, key := range slices.Sorted(maps.Keys(w.app.Annotations)) {
		if strings.HasPrefix(key, prefix) {
			flags = append(flags, "--annotation="+key+"="+w.app.Annotations[key])
		}
	}
	return flags
}

// inHand are the flags of a caller that holds a token for AWS.
func (w *environment) inHand() []string {
	w.t.Helper()
	return append(w.annotationFlags(""), w.tokenFile(aws.DefaultAudience), "--region=eu-central-1")
}

func (w *environment) mints() int { return w.cloud.Calls("sts", "AssumeRoleWithWebIdentity") }

// ServeHTTP is an API server that has app and issues its tokens.
func (w *environment) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	const of = "/api/v1/namespaces/tenant-a/serviceaccounts/app"
	switch {
	case r.URL.Path == of && r.Method == http.MethodGet:
		sa := w.app.DeepCopy()
		sa.APIVersion, sa.Kind = "v1", "ServiceAccount"
		_ = json.NewEncoder(rw).Encode(sa)
	case r.URL.Path == of+"/token":
		var request authenticationv1.TokenRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &request)
		}
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		life := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
		request.APIVersion, request.Kind = "authentication.k8s.io/v1", "TokenRequest"
		request.Status.Token = w.jwt(request.Spec.Audiences, life)
		request.Status.ExpirationTimestamp.Time = time.Now().Add(life)
		rw.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(rw).Encode(request)
	default:
		http.NotFound(rw, r)
	}
}

// cluster serves an API server, and returns the flags for app in it and the
// path of the kubeconfig. Each call in this process counts as one of a chain,
// whose depth is a variable of the process.
func (w *environment) cluster(handler http.Handler, login clientcmdapi.AuthInfo) (flags []string, kubeconfig string) {
	w.t.Helper()
	w.t.Setenv(DepthVariable, "")
	server := httptest.NewTLSServer(handler)
	w.t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig = w.kubeconfigOf(server.URL, ca, login)
	return []string{"--kubeconfig=" + kubeconfig, "--service-account=tenant-a/app", "--region=eu-central-1"}, kubeconfig
}

func (w *environment) kubeconfigOf(server string, ca []byte, login clientcmdapi.AuthInfo) string {
	w.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = &login
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	content, err := clientcmd.Write(*config)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.write("kube.yaml", string(content))
}

func (w *environment) load(kubeconfig string) *clientcmdapi.Config {
	w.t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	return config
}
