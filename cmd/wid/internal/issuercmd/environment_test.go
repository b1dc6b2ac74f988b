package issuercmd

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	azureClient  = "11111111-2222-4333-8444-555555555555"
	gcpProvider  = "projects/123456789012/locations/global/workloadIdentityPools/east/providers/east"
	subjectOfApp = "system:serviceaccount:tenant-a:app"
)

func role(name string) string { return "arn:aws:iam::123456789012:role/" + name }

// environment is a cloud, an issuer, and a person who runs what wid issuer
// prints. Programs of theirs are in bin.
type environment struct {
	t      *testing.T
	cloud  *cloudtest.Cloud
	issuer *cloudtest.Issuer
	home   string
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{t: t, cloud: testenv.Cloud(t), issuer: testenv.Issuer(t), home: t.TempDir()}
	if err := os.Mkdir(filepath.Join(w.home, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *environment) write(name, content string) (path string) {
	w.t.Helper()
	path = filepath.Join(w.home, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *environment) program(name, script string) {
	w.t.Helper()
	if err := os.Chmod(w.write(filepath.Join("bin", name), script), 0o700); err != nil { //nolint:gosec // a program
		w.t.Fatal(err)
	}
}

// kubeconfig is for an API server with a certificate, if it has one.
func (w *environment) kubeconfig(server string, certificate []byte) (path string) {
	w.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	if certificate != nil {
		config.Clusters["c"].CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: certificate})
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "x"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	content, err := clientcmd.Write(*config)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.write("kubeconfig", string(content))
}

// run runs wid issuer in this process.
func (w *environment) run(args ...string) (out string, err error) {
	w.t.Helper()
	return executed(w.t, NewIssuer(), args...)
}

func executed(t *testing.T, cmd *cobra.Command, args ...string) (out string, err error) {
	t.Helper()
	var stdout bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cli.Finish(cmd)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), err
}

func (w *environment) must(args ...string) string {
	w.t.Helper()
	out, err := w.run(args...)
	if err != nil {
		w.t.Fatalf("wid issuer %q: %v", args, err)
	}
	return out
}

// bash runs what was printed.
func (w *environment) bash(env []string, flags, script string) (out string, err error) {
	w.t.Helper()
	proxy, err := w.cloud.ProxyEnv(w.home)
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), "bash", flags, script) //nolint:gosec // the test's own
	cmd.Dir = w.home
	cmd.Env = slices.Concat(proxy, []string{"HOME=" + w.home, "PATH=" + w.home + "/bin:" + os.Getenv("PATH")}, env)
	content, err := cmd.CombinedOutput()
	return string(content), err
}

// token is what wid token gets with a token for the audience in hand.
func (w *environment) token(flags []string, audience string) string {
	w.t.Helper()
	held, err := w.issuer.Sign(w.issuer.Claims(testenv.ServiceAccount("tenant-a", "app"), []string{audience}, time.Hour))
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := executed(w.t, (&credentials.App{HTTPClient: w.cloud.Client()}).NewToken(), append(flags,
		"--token-file="+w.write("held", held), "--no-cache", "-o=json", "--reveal")...)
	var got struct{ Values map[string]string }
	if err != nil || json.Unmarshal([]byte(out), &got) != nil {
		w.t.Fatalf("wid token %q: %v", flags, err)
	}
	return got.Values["WID_TOKEN"]
}

// refused asserts that wid issuer refuses its usage.
func (w *environment) refused(t *testing.T, want string, args ...string) {
	t.Helper()
	out, err := w.run(args...)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUsage || !strings.Contains(err.Error(), want) ||
		out != "" {
		t.Errorf("wid issuer %q: got %v, want code %d and %q; it prints %s", args, err, cli.ExitUsage, want, out)
	}
}
