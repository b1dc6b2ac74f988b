package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// One mistake of each family and of each kind: the message is on standard
// error, the code says what kind it is, and standard output holds nothing that
// a caller could take for a credential. TestHubMistakes has the hubs' families.
func TestMistakes(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	inHand := w.inHand(t)
	nobody := "--kubeconfig=" + filepath.Join(w.home, "nobody.yaml")
	w.write(t, filepath.Join(w.home, "nobody.yaml"), kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, "x"))
	with := func(words ...string) []string { return slices.Concat(words, inHand) }
	for name, tc := range map[string]struct {
		args []string
		code int
		want string // on standard error
	}{
		"unknown command": {[]string{"tokn"}, cli.ExitUsage, `wid: unknown command "tokn"`},
		"unknown flag":    {[]string{"token", "--secret"}, cli.ExitUsage, "wid token --help"},
		"version":         {[]string{"version", "-o", "xml"}, cli.ExitUsage, "pass table, json or yaml"},
		"completion":      {[]string{"completion", "tcsh"}, cli.ExitUsage, "wid completion --help"},
		"token":           {with("token", "--provider=aws", "-o=env"), cli.ExitUsage, "add --reveal"},
		"token, misconfigured": {with("token", "--provider=oracle"), cli.ExitMisconfigured,
			`no provider "oracle"; use one of: aws, azure, gcp, generic, exchange`},
		"token, denied": {with("token", "--provider=aws", "--service-account=tenant-b/app"), cli.ExitDenied,
			`"tenant-b/app"`},
		"token, unavailable": {[]string{"token", "--provider=aws", "--service-account=a/b", nobody,
			"--region=eu-central-1"}, cli.ExitUnavailable, "refused"},
		"kubeconfig":   {with("kubeconfig", "--provider=exchange"), cli.ExitMisconfigured, "has no access to clusters"},
		"plugin":       {with("exec-credential", "--provider=aws"), cli.ExitMisconfigured, "cluster"},
		"bootstrap":    {[]string{"bootstrap", "join-command", "ABC"}, cli.ExitUsage, "<id>.<secret>"},
		"issuer":       {[]string{"issuer", "publish"}, cli.ExitUsage, "--to is missing"},
		"pod-identity": {[]string{"pod-identity", "trust-policy", "b"}, cli.ExitUsage, "--server-role is missing"},
		"doctor":       {[]string{"doctor", "--provider=aws", "--pod=app"}, doctor.ExitUsage, "namespace/name"},
		"doctor registration": {[]string{"doctor", "registration", "--cluster-name=a"}, doctor.ExitUsage,
			"--hub-kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.wid(t, "", tc.args...)
			if r.code != tc.code || !strings.HasPrefix(r.stderr, "wid: ") || !strings.Contains(r.stderr, tc.want) ||
				r.stdout != "" || strings.Contains(r.stderr, "eyJ") {
				t.Errorf("got %+v, want code %d and %q", r, tc.code, tc.want)
			}
		})
	}
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

// docker shows what a helper prints to standard output, so that is where its
// message is too.
func TestDockerMistakes(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for name, tc := range map[string]struct{ stdin, env, stderr string }{
		"a foreign registry": {"ghcr.io", "", "ghcr.io"},
		"flags":              {registryHost, "WID_TIMEOUT=soon", "WID_TIMEOUT"},
		"a password":         {"https://u:hunter2@" + registryHost, "", "holds a user name"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.exec(t, tc.stdin, []string{tc.env}, "wid", "docker-credential", "get")
			want := r.stderr
			if tc.stdin == "ghcr.io" {
				want = plugin.DockerNotFound + "\n"
			}
			if r.code != cli.ExitOther || r.stdout != want || !strings.Contains(r.stderr, tc.stderr) ||
				strings.Contains(r.stderr, "hunter2") || json.Valid([]byte(r.stdout)) {
				t.Errorf("got %+v, want code 1, %q, and %q on standard error", r, want, tc.stderr)
			}
		})
	}
}

// A standard input that is closed is empty.
func TestClosedStandardInput(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for _, args := range []string{"kubelet-credential-provider", "git-credential get"} {
		if r := w.exec(t, "", nil, "bash", "-c", "wid "+args+" <&-"); r.code != cli.ExitMisconfigured || r.stdout != "" {
			t.Errorf("%s: got %+v, want code %d", args, r, cli.ExitMisconfigured)
		}
	}
}

// Whoever stops reading before the answer is there ends wid as it ends other
// programs.
func TestStandardOutputThatNobodyReads(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	reader, writer, err := os.Pipe()
	if err != nil || reader.Close() != nil {
		t.Fatal(err)
	}
	defer writer.Close() //nolint:errcheck // nobody reads
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), filepath.Join(w.home, "bin", "wid"),
		append([]string{"credential-process"}, w.inHand(t)...)...) //nolint:gosec // the test's own
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), w.env...), writer, &stderr
	err = cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGPIPE ||
		stderr.Len() != 0 {
		t.Errorf("got %v, and %q on standard error; want SIGPIPE, and nothing", err, stderr.String())
	}
}

// A disk that is full costs the cache, not the credential. Standard output that
// cannot be written is an error.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	args := "'" + strings.Join(w.inHand(t), "' '") + "'"
	r := w.exec(t, "", nil, "bash", "-c",
		"ulimit -f 0; wid credential-process --cache-dir=kept "+args+" | cat; exit ${PIPESTATUS[0]}")
	if r.code != 0 || !strings.Contains(r.stdout, "SecretAccessKey") || !strings.Contains(r.stderr, "is not kept") {
		t.Errorf("got %+v, want a credential and a warning", r)
	}
	r = w.exec(t, "", nil, "bash", "-c", "wid credential-process "+args+" >/dev/full")
	if r.code != cli.ExitOther || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("got %+v, want code %d", r, cli.ExitOther)
	}
}
