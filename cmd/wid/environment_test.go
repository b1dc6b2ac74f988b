package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// beWid has the test binary behave as wid: a kubeconfig that a test writes in
// this process names this binary as its plugin.
const beWid = "WID_TEST_BE_WID"

func init() {
	if run := programs()[os.Getenv(asProgram)]; run != nil {
		out, err := run(context.Background(), os.Args[1])
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err) // the last resort
			os.Exit(1)
		}
		_, _ = fmt.Print(out) // the test sees it
		os.Exit(0)
	}
	if os.Getenv(beWid) != "" {
		main()
	}
}

// built is wid without the race detector, with which each of its hundreds of
// starts takes several times as long. TestMain removes the folder.
var built struct {
	sync.Once
	dir string
	err error
}

// program returns the path of wid.
func program(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "wid-") //nolint:usetesting // it outlives the first test
		if built.err != nil {
			return
		}
		args := []string{"build", "-buildvcs=false", "-ldflags=-w", "-o", filepath.Join(built.dir, "wid"), "."}
		build := exec.CommandContext(context.Background(), "go", args...) //nolint:gosec // arguments of this test
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build wid: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "wid")
}

const (
	account      = "123456789012"
	registryHost = account + ".dkr.ecr.eu-central-1.amazonaws.com"
	gitHost      = "git-codecommit.eu-central-1.amazonaws.com"
	azureTenant  = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	azureClient  = "11111111-2222-4333-8444-555555555555"
	gcpProvider  = "projects/123456789012/locations/global/workloadIdentityPools/east/providers/east"
	subjectOfApp = "system:serviceaccount:tenant-a:app"
)

func role(name string) string { return "arn:aws:iam::" + account + ":role/" + name }

// environment is a cloud, the programs, and a person's home directory.
type environment struct {
	cloud  *cloudtest.Cloud
	issuer *cloudtest.Issuer
	home   string
	env    []string
}

func newEnvironment(t testing.TB) *environment {
	t.Helper()
	issuer := testenv.Issuer(t)
	cloud := testenv.Cloud(t)
	w := &environment{cloud: cloud, issuer: issuer, home: t.TempDir()}
	w.trust(issuer.URL(), issuer.HTTPClient())
	proxy, err := cloud.ProxyEnv(w.home)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(w.home, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program(t), filepath.Join(bin, "wid")); err != nil {
		t.Fatal(err)
	}
	w.env = append(proxy, beWid+"=1", "HOME="+w.home, "XDG_CACHE_HOME=", "XDG_CONFIG_HOME=", "KUBECONFIG=/nonexistent",
		"AWS_REGION=", "AWS_EC2_METADATA_DISABLED=true", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GORACE=atexit_sleep_ms=0", // otherwise each process waits for a second at its end
		"PATH="+bin+":"+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	return w
}

// trust has all clouds trust an issuer.
func (w *environment) trust(issuer string, fetch *http.Client) {
	w.cloud.AWS().AddOIDCProvider(account, issuer, fetch, aws.DefaultAudience)
	w.cloud.AWS().SetRole(role("tenant-a"), cloudtest.Trust{Issuer: issuer, Subjects: []string{subjectOfApp}})
	w.cloud.Azure().AddFederatedCredential(azureTenant, azureClient,
		cloudtest.FederatedCredential{Issuer: issuer, Subject: subjectOfApp, Audience: azure.DefaultAudience, Fetch: fetch})
	w.cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
		cloudtest.WorkloadIdentityProvider{Issuer: issuer, Fetch: fetch})
	w.cloud.OAuth().AddIssuer(issuer, fetch, w.cloud.OAuth().TokenEndpoint())
	w.cloud.OAuth().AddGrant(cloudtest.OAuthGrant{Issuer: issuer, Subjects: []string{subjectOfApp}})
}

// annotations are those of the ServiceAccount app for all clouds.
func annotations() map[string]string {
	return map[string]string{
		aws.RoleARNAnnotation:                  role("tenant-a"),
		azure.ClientIDAnnotation:               azureClient,
		azure.TenantIDAnnotation:               azureTenant,
		gcp.WorkloadIdentityProviderAnnotation: gcpProvider,
	}
}

func annotationFlags() (flags []string) {
	for key, value := range annotations() {
		flags = append(flags, "--annotation="+key+"="+value)
	}
	slices.Sort(flags)
	return flags
}

// jwt is a token of the ServiceAccount app.
func (w *environment) jwt(t testing.TB, audience string) string {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
		UID: "0b7c4a4e-0000-4000-8000-000000000001"}}
	token, err := w.issuer.Sign(w.issuer.Claims(sa, []string{audience}, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// tokenFile is the flag for a file with that.
func (w *environment) tokenFile(t testing.TB, audience string) string {
	t.Helper()
	file := filepath.Join(w.home, strings.NewReplacer("/", "-", ":", "-").Replace(audience)+".jwt")
	w.write(t, file, w.jwt(t, audience))
	return "--token-file=" + file
}

// inHand are the flags of a caller that holds a token for AWS.
func (w *environment) inHand(t testing.TB) []string {
	t.Helper()
	return append(annotationFlags(), w.tokenFile(t, aws.DefaultAudience), "--region=eu-central-1")
}

func (w *environment) write(t testing.TB, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// result is what a program has left behind.
type result struct {
	stdout, stderr string
	code           int
}

// exec runs a program. Later variables win.
func (w *environment) exec(t testing.TB, stdin string, env []string, name string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...) //nolint:gosec // programs of the test's own
	if path, ok := w.bin(name); ok {
		cmd.Path, cmd.Err = path, nil
	}
	cmd.Env = slices.Concat(os.Environ(), w.env, env)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = w.home, strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// bin finds the programs that the environment has itself, and those that were
// built with the control plane: this machine's kubectl, if it has one, is of
// any version.
func (w *environment) bin(name string) (string, bool) {
	if filepath.Base(name) != name {
		return "", false
	}
	for _, dir := range []string{filepath.Join(w.home, "bin"), os.Getenv("KUBEBUILDER_ASSETS")} {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return path, true
		}
	}
	return "", false
}

func (w *environment) wid(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	return w.exec(t, stdin, nil, "wid", args...)
}

// mustWid is for calls that work and say nothing on standard error.
func (w *environment) mustWid(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	r := w.wid(t, stdin, args...)
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("wid %s ends with %d:\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// mints counts the exchanges at AWS STS.
func (w *environment) mints() int { return w.cloud.Calls("sts", "AssumeRoleWithWebIdentity") }
