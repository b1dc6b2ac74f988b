package doctorcmd

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	identitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	account      = "123456789012"
	roleARN      = "arn:aws:iam::" + account + ":role/tenant-a"
	azureTenant  = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	azureClient  = "11111111-2222-4333-8444-555555555555"
	gcpProvider  = "projects/123456789012/locations/global/workloadIdentityPools/east/providers/east"
	subjectOfApp = "system:serviceaccount:tenant-a:app"
)

// environment is a cloud that trusts an issuer for the ServiceAccount app of
// tenant A.
type environment struct {
	t      *testing.T
	cloud  *cloudtest.Cloud
	issuer *cloudtest.Issuer
	app    *corev1.ServiceAccount
	dir    string
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{t: t, cloud: testenv.Cloud(t), issuer: testenv.Issuer(t), dir: t.TempDir()}
	w.app = testenv.ServiceAccount("tenant-a", "app", aws.RoleARNAnnotation, roleARN, azure.ClientIDAnnotation,
		azureClient, azure.TenantIDAnnotation, azureTenant, gcp.WorkloadIdentityProviderAnnotation, gcpProvider)
	issuer, fetch := w.issuer.URL(), w.issuer.HTTPClient()
	w.cloud.AWS().AddOIDCProvider(account, issuer, fetch, aws.DefaultAudience)
	w.cloud.AWS().SetRole(roleARN, cloudtest.Trust{Issuer: issuer, Subjects: []string{subjectOfApp}})
	w.cloud.Azure().AddFederatedCredential(azureTenant, azureClient, cloudtest.FederatedCredential{Issuer: issuer,
		Subject: subjectOfApp, Audience: azure.DefaultAudience, Fetch: fetch})
	w.cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
		cloudtest.WorkloadIdentityProvider{Issuer: issuer, Fetch: fetch})
	return w
}

// result is what a command has left behind. The error is what main prints to
// standard error, apart from cli.ExitStatus.
type result struct {
	stdout, stderr, err string
	code                int
}

// run runs wid doctor in this process, with an issuer that anonymous clients
// can read.
func (w *environment) run(args ...string) (r result) {
	w.t.Helper()
	cmd := DoctorCommand(&credentials.App{HTTPClient: w.cloud.Client()},
		&DoctorFlags{Config: identitydoctor.Config{IssuerClient: w.issuer.HTTPClient()}})
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cli.Finish(cmd)
	if err := cmd.ExecuteContext(w.t.Context()); err != nil {
		r.err, r.code = err.Error(), cli.ExitCode(w.t.Context(), err)
	}
	r.stdout, r.stderr = stdout.String(), stderr.String()
	return r
}

// report is what wid doctor prints as JSON.
func (w *environment) report(args ...string) (*doctor.Report, result) {
	w.t.Helper()
	r := w.run(append(args, "-o=json")...)
	report := &doctor.Report{}
	if err := json.Unmarshal([]byte(r.stdout), report); err != nil || len(report.Findings) == 0 {
		w.t.Fatalf("wid doctor %q: got %+v, %v; want a report", args, r, err)
	}
	return report, r
}

func (w *environment) write(name, content string) (path string) {
	w.t.Helper()
	path = filepath.Join(w.dir, name)
	writeKubeconfig(w.t, path, content)
	return path
}

func (w *environment) tokenFile(audience string) string {
	w.t.Helper()
	token, err := w.issuer.Sign(w.issuer.Claims(w.app, []string{audience}, time.Hour))
	if err != nil {
		w.t.Fatal(err)
	}
	return "--token-file=" + w.write("token.jwt", token)
}

// inHand are the flags of a caller that holds a token.
func (w *environment) inHand(audience string) []string {
	w.t.Helper()
	flags := []string{w.tokenFile(audience), "--region=eu-central-1"}
	for _, key := range slices.Sorted(maps.Keys(w.app.Annotations)) {
		flags = append(flags, "--annotation="+key+"="+w.app.Annotations[key])
	}
	return flags
}

// cluster returns the kubeconfig of an API server.
func (w *environment) cluster(handler http.Handler) (kubeconfig string) {
	w.t.Helper()
	w.t.Setenv(credentials.DepthVariable, "") // which each call in this process counts up
	server := httptest.NewTLSServer(handler)
	w.t.Cleanup(server.Close)
	content, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.write("kube.yaml", strings.Replace(kubeconfigThrough(server.URL, ""), `"proxy-url":""`,
		`"certificate-authority-data":`+string(content), 1))
}

// apiServer has some objects. Its ServiceAccounts get tokens of the issuer.
func apiServer(objects ...client.Object) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		for _, obj := range objects {
			kind := map[bool]string{true: "/pods/", false: "/serviceaccounts/"}[isPod(obj)]
			if r.URL.Path == "/api/v1/namespaces/"+obj.GetNamespace()+kind+obj.GetName() {
				_ = json.NewEncoder(rw).Encode(obj)
				return
			}
		}
		refuse(rw, http.StatusNotFound, "NotFound", r.URL.Path+" not found")
	})
}

func isPod(obj client.Object) bool { _, ok := obj.(*corev1.Pod); return ok }

// refuse answers as an API server does.
func refuse(rw http.ResponseWriter, status int, reason, message string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"code": status, "reason": reason, "message": message})
}

// unset removes variables of whoever runs the tests.
func TestMain(m *testing.M) {
	for _, name := range []string{"AWS_REGION", "AWS_PROFILE", "KUBERNETES_SERVICE_HOST"} {
		_ = os.Unsetenv(name)
	}
	os.Exit(m.Run())
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
