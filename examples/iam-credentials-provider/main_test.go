package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// asProgram makes the test binary run the program instead of the tests.
const asProgram = "IAM_CREDENTIALS_PROVIDER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == demoApp {
		main()
		return
	}
	logTo(io.Discard, nil)
	os.Exit(m.Run())
}

func TestFlagsThatCannotWork(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no command":           {nil, "name the command server or webhook"},
		"unknown command":      {[]string{"proxy"}, `unknown command "proxy"`},
		"argument":             {[]string{"server", "now"}, "now"},
		"missing kubeconfig":   {[]string{"server", "--audience=x", "--cluster=x"}, "set KUBECONFIG"},
		"no audience":          {[]string{"server", "--cluster=x"}, `"audience" not set`},
		"no cluster":           {[]string{"server", "--audience=x"}, "--cluster is missing"},
		"empty cluster":        {[]string{"server", "--audience=x", "--cluster="}, "CLUSTER"},
		"no image":             {[]string{"webhook", "--audience=x"}, `"image" not set`},
		"flag of the other":    {[]string{"server", "--image=x"}, "--image"},
		"demo beside commands": {[]string{"server", "--demo"}, "--demo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "/nonexistent")
			if err := run(t.Context(), test.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if err := run(t.Context(), []string{"server", "--help"}, io.Discard, io.Discard); err != nil {
		t.Errorf("--help: %v", err)
	}
}

func TestDocumentedFlags(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range newRoot(io.Discard).Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(string(readme), "| `--"+f.Name+"` |") {
				t.Errorf("README.md lacks --%s of %s", f.Name, cmd.Name())
			}
		})
	}
}

func TestOutsideOfAClusterOneLineIsPrinted(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"server", "--audience=x", "--cluster=x"}, {"webhook", "--audience=x", "--image=x"}} {
		t.Run(args[0], func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = []string{asProgram + "=1", "HOME=" + t.TempDir()}
			out, err := cmd.CombinedOutput()
			if want := "iam-credentials-provider: run it in a cluster, or set KUBECONFIG\n"; err == nil || string(out) != want {
				t.Errorf("%v: %q, want %q", err, out, want)
			}
		})
	}
}

func TestCachedObjectsAreStripped(t *testing.T) {
	now := metav1.Now()
	kept := metav1.ObjectMeta{Namespace: "team-a", Name: "b", UID: "u", ResourceVersion: "1", Generation: 2, DeletionTimestamp: &now}
	full := kept
	full.Annotations, full.Labels, full.Finalizers = map[string]string{corev1.LastAppliedConfigAnnotation: "x"}, map[string]string{"a": "b"}, []string{"example.com/x"}
	full.ManagedFields, full.OwnerReferences = []metav1.ManagedFieldsEntry{{Manager: "x"}}, []metav1.OwnerReference{{Name: "x"}}
	for name, object := range map[string]client.Object{
		"IAMBinding": &v1alpha1.IAMBinding{ObjectMeta: full}, "IAMRoleAllowList": &v1alpha1.IAMRoleAllowList{ObjectMeta: full},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := strip(object); err != nil {
				t.Fatal(err)
			}
			if got := meta.AsPartialObjectMetadata(object).ObjectMeta; !reflect.DeepEqual(got, kept) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// checkEmpty reports files that the demo left behind.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

// cancelAfter cancels once the demo has printed a text.
type cancelAfter struct {
	strings.Builder
	text   string
	cancel context.CancelFunc
}

func (w *cancelAfter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.cancel()
	}
	return w.Builder.Write(p)
}

func TestInterruptedDemoRemovesEverything(t *testing.T) {
	kubetest.Assets(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := run(ctx, []string{"--demo"}, &cancelAfter{text: " 2. ", cancel: cancel}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	checkEmpty(t, dir)
}

// The demo uses neither the machine's AWS configuration nor the network: each of these would make an AWS client fail that reads it.
func TestDemo(t *testing.T) {
	kubetest.Assets(t)
	dir, home := t.TempDir(), t.TempDir()
	for _, file := range []string{"config", "credentials"} {
		if err := os.MkdirAll(filepath.Join(home, ".aws", file), 0o700); err != nil { // a folder cannot be read
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--demo")
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir, "HOME="+home, "AWS_REGION=nowhere", "AWS_ROLE_ARN=none", "AWS_WEB_IDENTITY_TOKEN_FILE=/nonexistent",
		"AWS_ENDPOINT_URL=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1")
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil || errOut.Len() > 0 {
		t.Errorf("%v: %s", err, &errOut)
	}
	checkEmpty(t, dir)
	checkText(t, string(out),
		`^\nA pod gets AWS credentials through an IAMBinding\. Everything is embedded[^.]*AWS\s+is\s+simulated`,
		`manifests are applied`,
		`server and the webhook start`,
		`administrator creates the namespace "team-a"`,
		`Pod Security +restricted\n`,
		`RoleAssumable is True[^"]*"demo\.team-a\.reporting"`,
		`sidecar +iam-credentials-proxy\n`,
		`runs +/pod proxy`,
		`token +of the audience`,
		`app has AWS_CONTAINER_CREDENTIALS_FULL_URI\n`,
		`app has AWS_CONTAINER_AUTHORIZATION_TOKEN\n`,
		`answer +arn:aws:sts::123456789012:assumed-role/reporting/\s+demo\.team-a\.reporting\n`,
		`not allowed\.`,
		`does\s+not\s+allow\s+namespace\s+"team-a"\s+the\s+role\s+"arn:aws:iam::123456789012:role/admin"`,
		`Conflict is True`,
		`answer +403 Conflict`,
		`next pod +admission webhook "pods\.iam\.aws\.k8s\.io"\s+denied`,
		`answer +401 NotAttested`,
		`after +\d+s`,
		`Done in \d+s`)
}

// checkText checks what a demo prints, in this order.
func checkText(t *testing.T, text string, wants ...string) {
	t.Helper()
	rest := text
	for _, want := range wants {
		at := regexp.MustCompile(want).FindStringIndex(rest)
		if at == nil {
			t.Errorf("lacks, in this order, %s", want)
			continue
		}
		rest = rest[at[1]:]
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
	if secret := regexp.MustCompile(`eyJ|AKIA|ASIA|PRIVATE|BEGIN|[A-Z2-7]{26}`).FindString(text); secret != "" {
		t.Error("prints a secret")
	}
	if t.Failed() {
		t.Log(text)
	}
}
