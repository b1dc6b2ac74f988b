package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

const (
	kubeletRequest = `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest","image":"` +
		registryHost + `/app"`
	gitGet = "protocol=https\nhost=" + gitHost + "\npath=v1/repos/my-repo\n\n"
)

// Whatever goes wrong: the message says what to do, the code says what kind it
// is, and standard output holds nothing that a caller could take for a
// credential.
func TestMistakes(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	inHand := w.inHand(t)
	with := func(command string, more ...string) []string {
		return slices.Concat(strings.Fields(command), inHand, more)
	}
	linked := filepath.Join(w.home, "linked")
	if err := os.Symlink(t.TempDir(), linked); err != nil {
		t.Fatal(err)
	}
	w.write(t, filepath.Join(w.home, "open", "x"), "")
	if err := os.Chmod(filepath.Join(w.home, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.write(t, filepath.Join(w.home, "not-a-token"), "hello")
	w.write(t, filepath.Join(w.home, "broken.yaml"), "{")
	w.write(t, filepath.Join(w.home, "nobody.yaml"), kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, "x"))
	execInfo := func(value string) []string { return []string{plugin.ExecInfoVariable + "=" + value} }
	const otherCluster = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://x"}}}`
	for name, tc := range map[string]struct {
		args  []string
		stdin string
		env   []string
		code  int
		want  string // on standard error
	}{
		"no provider": {args: []string{"token"}, code: cli.ExitUsage,
			want: "--provider, one of: aws, azure, gcp, generic, exchange\n"},
		"three clouds": {args: with("token"), code: cli.ExitUsage,
			want: `ServiceAccount "tenant-a/app" has annotations of aws and azure and gcp: pick one with --provider`},
		"no cloud": {args: []string{"token", inHand[len(inHand)-2], "--annotation=a=b"}, code: cli.ExitUsage,
			want: `"tenant-a/app" has no annotation of a cloud`},
		"flag of another": {args: []string{"token", inHand[len(inHand)-2],
			"--annotation=" + aws.RoleARNAnnotation + "=" + role("tenant-a"), "--delegate=x"}, code: cli.ExitUsage,
			want: "--delegate is for the provider gcp"},
		"nobody's provider": {args: []string{"token", "--kubeconfig=nobody.yaml", "--service-account=a/b", "--timeout=10s"},
			code: cli.ExitUnavailable, want: `read ServiceAccount "a/b"`},
		"nobody's completion": {args: []string{"completion", "tcsh"}, code: cli.ExitUsage, want: "wid completion --help"},
		"bootstrap token": {args: []string{"bootstrap", "join-command", "ABC"}, code: cli.ExitUsage,
			want: "<id>.<secret>"},
		"unknown provider": {args: with("token --provider oracle"), code: cli.ExitMisconfigured,
			want: `no provider "oracle"; use one of: aws, azure, gcp, generic, exchange`},
		"session policy": {args: with("token --provider aws --assume-role=" + role("b") + " --session-policy=x"),
			code: cli.ExitMisconfigured, want: "correct it (--session-policy)"},
		"hanging cluster": {args: []string{"bootstrap", "list", "--kubeconfig=nobody.yaml", "--timeout=0s"},
			code: cli.ExitUsage, want: "--timeout is more than 0"},
		"unknown command": {args: []string{"tokn"}, code: cli.ExitUsage, want: "unknown command"},
		"unknown flag":    {args: []string{"token", "--secret"}, code: cli.ExitUsage, want: "wid token --help"},
		"argument":        {args: with("token x"), code: cli.ExitUsage, want: "--help"},
		"output": {args: with("token --provider aws -o xml"), code: cli.ExitUsage,
			want: "pass table, json, yaml or env"},
		"env not revealed": {args: with("token --provider aws -o env"), code: cli.ExitUsage, want: "add --reveal"},
		"environment": {args: with("token --provider aws"), env: []string{"WID_TIMEOUT=soon"}, code: cli.ExitUsage,
			want: "WID_TIMEOUT"},
		"no time":          {args: with("token --provider aws --timeout 0"), code: cli.ExitUsage, want: "--timeout"},
		"annotation":       {args: with("token --provider aws --annotation x"), code: cli.ExitUsage, want: "key=value"},
		"annotation twice": {args: with("token --provider aws", inHand[0]), code: cli.ExitUsage, want: "each key once"},
		"annotation alone": {args: []string{"token", "--provider=aws", "--service-account=a/b", "--annotation=x=y"},
			code: cli.ExitUsage, want: "ServiceAccount's own annotations count"},
		"token and cluster": {args: with("token --provider aws --context x"), code: cli.ExitUsage,
			want: "no cluster is asked"},
		"two clusters": {args: []string{"token", "--provider=aws", "--in-cluster", "--context=x"}, code: cli.ExitUsage,
			want: "--in-cluster excludes"},
		"cluster, no name": {args: []string{"token", "--provider=aws", "--kubeconfig=x"}, code: cli.ExitUsage,
			want: "--service-account namespace/name"},
		"name": {args: []string{"token", "--provider=aws", "--service-account=app"}, code: cli.ExitUsage,
			want: "namespace/name"},
		"another name": {args: with("token --provider aws --service-account tenant-b/app"), code: cli.ExitDenied,
			want: `"tenant-b/app"`},
		"proxy": {args: with("token --provider aws --proxy-url ftp://x"), code: cli.ExitMisconfigured,
			want: "proxy"},
		"exchange nowhere": {args: with("token --provider exchange"), code: cli.ExitMisconfigured,
			want: "--exchange-endpoint"},
		"no token file": {args: []string{"token", "--provider=aws", "--token-file=/nonexistent"},
			code: cli.ExitMisconfigured, want: "/nonexistent"},
		"no token": {args: []string{"token", "--provider=aws", "--token-file=not-a-token"},
			code: cli.ExitMisconfigured, want: "not-a-token"},
		"empty stdin": {args: []string{"token", "--provider=aws", "--token-file=/dev/stdin"},
			code: cli.ExitMisconfigured, want: "empty"},
		"endless stdin": {args: []string{"token", "--provider=aws", "--token-file=/dev/stdin"},
			stdin: strings.Repeat("x", 1<<20), code: cli.ExitMisconfigured, want: "larger than"},
		"no cluster": {args: []string{"token", "--provider=aws", "--service-account=a/b"},
			code: cli.ExitMisconfigured, want: "pass --kubeconfig"},
		"broken kubeconfig": {args: []string{"token", "--provider=aws", "--service-account=a/b",
			"--kubeconfig=broken.yaml"}, code: cli.ExitMisconfigured, want: "pass --kubeconfig"},
		"not in a pod": {args: []string{"token", "--provider=aws", "--service-account=a/b", "--in-cluster"},
			code: cli.ExitMisconfigured, want: "run in a pod"},
		"nobody there": {args: []string{"token", "--provider=aws", "--service-account=a/b", "--kubeconfig=nobody.yaml",
			"--region=eu-central-1"}, code: cli.ExitUnavailable, want: "refused"},
		"linked cache": {args: with("token --provider aws --cache-dir linked"), code: cli.ExitMisconfigured,
			want: "symbolic link"},
		"open cache": {args: with("token --provider aws --cache-dir open"), code: cli.ExitMisconfigured,
			want: "open to other users"},
		"cache is a file": {args: with("token --provider aws --cache-dir not-a-token"), code: cli.ExitMisconfigured,
			want: "--no-cache"},
		"denied": {args: with("token --provider aws --annotation " + aws.AudienceAnnotation + "=vault"),
			code: cli.ExitDenied, want: "audience"},
		"no region": {args: slices.Concat([]string{"token", "--provider=aws"}, inHand[:len(inHand)-1]),
			code: cli.ExitMisconfigured, want: "region"},
		"process, provider": {args: with("credential-process --provider gcp"), code: cli.ExitUsage, want: "AWS"},
		"process, nobody":   {args: []string{"credential-process"}, code: cli.ExitUsage, want: "--service-account"},
		"exec, not JSON": {args: with("exec-credential --provider aws"), env: execInfo("{"), code: cli.ExitMisconfigured,
			want: plugin.ExecInfoVariable},
		"exec, kind": {args: with("exec-credential --provider aws"),
			env: execInfo(`{"kind":"Pod","apiVersion":"v1"}`), code: cli.ExitMisconfigured, want: `"Pod"`},
		"exec, version": {args: with("exec-credential --provider aws"),
			env:  execInfo(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v9"}`),
			code: cli.ExitMisconfigured, want: "v1beta1"},
		"exec, recursion": {args: []string{"exec-credential", "--provider=generic", "--service-account=a/b"},
			env: execInfo(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}`), code: cli.ExitUsage,
			want: "--in-cluster"},
		"exec, address alone": {args: []string{"exec-credential", "--provider=gcp"}, env: execInfo(otherCluster),
			code: cli.ExitUsage, want: "pass --cluster or --cluster-address"},
		"exec, own, flag": {args: []string{"exec-credential", "--provider=gcp", "--cluster-address=https://y"},
			env: execInfo(otherCluster), code: cli.ExitDenied, want: "--cluster-address"},
		"exec, no cluster": {args: with("exec-credential --provider aws"), code: cli.ExitMisconfigured, want: "cluster"},
		"exec, no CA": {args: with("exec-credential --provider aws --cluster-ca-file /nonexistent"),
			code: cli.ExitMisconfigured, want: "PEM"},
		"kubeconfig, stdin": {args: []string{"kubeconfig", "--provider=aws", "--token-file=/dev/stdin"},
			code: cli.ExitUsage, want: "when kubectl runs; name a file"},
		"kubeconfig, proxy": {args: with("kubeconfig --provider=aws --proxy-url=http://u:hunter2@proxy"),
			code: cli.ExitUsage, want: "HTTPS_PROXY"},
		"kubeconfig, cannot": {args: with("kubeconfig --provider exchange --exchange-endpoint https://x.example"),
			code: cli.ExitMisconfigured, want: "clusters"},
		"git, nothing": {args: with("git-credential get"), code: cli.ExitMisconfigured, want: "no repository"},
		"git, http": {args: with("git-credential get"), stdin: strings.Replace(gitGet, "https", "http", 1),
			code: cli.ExitMisconfigured, want: "no credential"},
		"git, not ours": {args: with("git-credential get"), stdin: "protocol=https\nhost=github.com\npath=a/b\n",
			code: cli.ExitMisconfigured, want: "github.com"},
		"git, look-alike": {args: with("git-credential get"),
			stdin: strings.Replace(gitGet, gitHost, gitHost+".evil.example", 1), code: cli.ExitMisconfigured,
			want: "evil.example"},
		"git, no path": {args: with("git-credential get"),
			stdin: strings.Replace(gitGet, "path=v1/repos/my-repo\n", "", 1), code: cli.ExitMisconfigured,
			want: "useHttpPath true"},
		"git, no such path": {args: with("git-credential get"), stdin: strings.Replace(gitGet, "my-repo", "my-repo.git", 1),
			code: cli.ExitMisconfigured, want: "CodeCommit"},
		"git, not theirs": {args: with("git-credential get --provider gcp"), stdin: gitGet, code: cli.ExitMisconfigured,
			want: "Secure Source Manager"},
		"kubelet, nothing": {args: []string{"kubelet-credential-provider"}, code: cli.ExitMisconfigured,
			want: "no request"},
		"kubelet, not JSON": {args: []string{"kubelet-credential-provider"}, stdin: "{", code: cli.ExitMisconfigured,
			want: "in JSON"},
		"kubelet, kind": {args: []string{"kubelet-credential-provider"}, stdin: `{"kind":"Pod"}`,
			code: cli.ExitMisconfigured, want: `"Pod"`},
		"kubelet, version": {args: []string{"kubelet-credential-provider"},
			stdin: strings.Replace(kubeletRequest, "/v1", "/v1alpha1", 1) + "}", code: cli.ExitMisconfigured,
			want: "CredentialProviderConfig"},
		"kubelet, no image": {args: []string{"kubelet-credential-provider"},
			stdin: `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest"}`,
			code:  cli.ExitMisconfigured, want: "no image"},
		"kubelet, no token": {args: []string{"kubelet-credential-provider"}, stdin: kubeletRequest + "}",
			code: cli.ExitMisconfigured, want: "--node-identity"},
		"kubelet, bad token": {args: []string{"kubelet-credential-provider"},
			stdin: kubeletRequest + `,"serviceAccountToken":"x"}`, code: cli.ExitMisconfigured, want: "JWT"},
		"kubelet, not ours": {args: []string{"kubelet-credential-provider"},
			stdin: strings.Replace(kubeletRequest, registryHost, "ghcr.io", 1) + "}", code: cli.ExitMisconfigured,
			want: "ghcr.io"},
		"kubelet, identity": {args: []string{"kubelet-credential-provider", "--service-account=a/b"},
			stdin: kubeletRequest + "}", code: cli.ExitUsage, want: "kubelet says"},
		"version": {args: []string{"version", "-o", "xml"}, code: cli.ExitUsage,
			want: "pass table, json or yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.exec(t, tc.stdin, tc.env, "wid", tc.args...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.want) || r.stdout != "" {
				t.Errorf("got %+v, want code %d and %s", r, tc.code, tc.want)
			}
			if strings.Contains(r.stderr, "eyJ") || strings.Contains(r.stderr, "panic") {
				t.Errorf("the message holds a token, or there was none: %s", r.stderr)
			}
		})
	}
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

// A standard input that stays open and silent ends with the time-out; one that
// is closed is empty.
func TestSilentStandardInput(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for _, args := range []string{"kubelet-credential-provider", "git-credential get"} {
		silent, open, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(w.home, "bin", "wid"),
			append(strings.Fields(args), "--timeout=100ms")...) //nolint:gosec // the test's own
		cmd.Env, cmd.Stdin = append(os.Environ(), w.env...), silent
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitMisconfigured || len(out) != 0 ||
			!strings.Contains(string(exit.Stderr), "does not end") {
			t.Errorf("%s: %v, %q", args, err, out)
		}
		_, _ = silent.Close(), open.Close()
		if r := w.exec(t, "", nil, "bash", "-c", "wid "+args+" <&-"); r.code != cli.ExitMisconfigured || r.stdout != "" {
			t.Errorf("%s, closed: %+v", args, r)
		}
	}
}

// The advice that CodeCommit needs is for its hosts only.
func TestAdviceOfGit(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for host, want := range map[string]bool{gitHost: true,
		strings.Replace(gitHost, "codecommit", "codecommit-fips", 1): true, strings.ToUpper(gitHost): true,
		"github.com": false, "dev.azure.com": false, gitHost + ".evil.example": false, "git-codecommit.evil.example": false} {
		for _, more := range [][]string{nil, {"--provider=aws"}} {
			r := w.wid(t, "protocol=https\nhost="+host+"\n",
				append(append([]string{"git-credential", "get"}, w.inHand(t)...), more...)...)
			if strings.Contains(r.stderr, "useHttpPath true") != want || r.code == 0 || r.stdout != "" {
				t.Errorf("%s: %+v", host, r)
			}
		}
	}
}

// docker shows what a helper prints to standard output, so that is where its
// message is too.
func TestDockerMistakes(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	inHand := w.inHand(t)
	for name, tc := range map[string]struct {
		args  []string
		stdin string
		env   []string
		want  string
	}{
		"nothing":                  {args: []string{"get"}, want: "no registry"},
		"no host":                  {args: []string{"get"}, stdin: "oci://x y", want: "artifact repository"},
		"not ours":                 {args: []string{"get"}, stdin: "ghcr.io", want: "ghcr.io"},
		"not ours, address":        {args: []string{"get"}, stdin: "https://[::1]/v1/", want: "[::1]"},
		"not ours, address's port": {args: []string{"get"}, stdin: "[::1]:5000", want: "[::1]:5000"},
		"other cloud":              {args: []string{"get"}, stdin: "teamregistry.azurecr.cn", want: "azurecr.cn"},
		"user info": {args: []string{"get"}, stdin: "https://u:hunter2@" + registryHost,
			want: "holds a user name"},
		"action":    {args: []string{"login"}, want: `invalid argument "login"`},
		"no action": {args: nil, want: "--help"},
		"environment": {args: append([]string{"get"}, inHand...), stdin: registryHost,
			env: []string{"WID_TIMEOUT=soon"}, want: "WID_TIMEOUT"},
		"contradicts": {args: append([]string{"get", "--in-cluster"}, inHand...), stdin: registryHost,
			want: "no cluster is asked"},
		"flag":       {args: []string{"get", "--nonsense"}, stdin: registryHost, want: "--nonsense"},
		"flag value": {args: []string{"get", "--timeout=soon"}, stdin: registryHost, want: "--timeout"},
		"cache": {args: append([]string{"get", "--cache-dir=/dev/null"}, inHand...), stdin: registryHost,
			want: "--no-cache"},
		"nobody": {args: append([]string{"get", "--proxy-url=http://127.0.0.1:1"}, inHand...),
			stdin: registryHost, want: "no answer through the proxy"},
		"no provider": {args: append([]string{"get", "--provider=gcp"}, inHand...), stdin: registryHost,
			want: "registry"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.exec(t, tc.stdin, tc.env, "wid", append([]string{"docker-credential"}, tc.args...)...)
			message := strings.TrimPrefix(r.stderr, "wid: ")
			if r.code != 1 || !strings.Contains(message, tc.want) {
				t.Errorf("got %+v", r)
			}
			notOurs := strings.HasPrefix(name, "not ours")
			if notOurs && r.stdout != plugin.DockerNotFound+"\n" || !notOurs && r.stdout != "wid: "+message {
				t.Errorf("standard output is %q", r.stdout)
			}
			if strings.Contains(r.stdout+r.stderr, "hunter2") || strings.Contains(r.stdout, "eyJ") ||
				json.Valid([]byte(r.stdout)) {
				t.Errorf("standard output looks like a credential: %q", r.stdout)
			}
		})
	}
}

// What stands in the cache is used only if it is whole and nobody else's.
func TestDamagedCache(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	args := append([]string{"credential-process", "--cache-dir=kept"}, w.inHand(t)...)
	first := w.mustWid(t, "", args...)
	files, err := filepath.Glob(filepath.Join(w.home, "kept", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(w.home, "kept")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	w.write(t, files[0], string(content[:len(content)/2]))
	if second := w.mustWid(t, "", args...); second == first || w.mints() != 2 {
		t.Errorf("half a file served: %d exchanges", w.mints())
	}
	if err := os.Chmod(files[0], 0o644); err != nil {
		t.Fatal(err)
	}
	if r := w.wid(t, "", args...); r.code != cli.ExitMisconfigured || r.stdout != "" ||
		!strings.Contains(r.stderr, "open to other users") {
		t.Errorf("%+v", r)
	}
	w.mustWid(t, "", append(args, "--no-cache")...)
}

// Secrets are in the cache and nowhere else in the home directory.
func TestNothingElseIsWritten(t *testing.T) {
	w := newEnvironment(t)
	out := w.mustWid(t, "", append([]string{"token", "--provider=aws", "-o=env", "--reveal"}, w.inHand(t)...)...)
	_, rest, _ := strings.Cut(out, "AWS_SECRET_ACCESS_KEY='")
	secret, _, _ := strings.Cut(rest, "'")
	err := filepath.WalkDir(w.home, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(path, filepath.Join(w.home, ".cache", "workloadid")) {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), secret) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil || len(secret) < 20 {
		t.Errorf("%v, a secret of %d characters", err, len(secret))
	}
}

// Whoever stops reading before the answer is there ends wid as it ends other
// programs.
func TestStandardOutputThatNobodyReads(t *testing.T) {
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
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() ||
		status.Signal() != syscall.SIGPIPE || stderr.Len() != 0 {
		t.Errorf("%v, %q", err, stderr.String())
	}
}

// A disk that is full costs the cache, not the credential, and leaves no half
// of a file.
func TestFullDisk(t *testing.T) {
	w := newEnvironment(t)
	args := "'" + strings.Join(w.inHand(t), "' '") + "'"
	r := w.exec(t, "", nil, "bash", "-c",
		"ulimit -f 0; wid credential-process --cache-dir=kept "+args+" | cat; exit ${PIPESTATUS[0]}")
	if r.code != 0 || !strings.Contains(r.stdout, "SecretAccessKey") || !strings.Contains(r.stderr, "is not kept") ||
		!strings.Contains(r.stderr, "switch the cache off") {
		t.Errorf("%+v", r)
	}
	if kept, err := filepath.Glob(filepath.Join(w.home, "kept", "*.json")); err != nil || len(kept) != 0 {
		t.Errorf("%q, %v", kept, err)
	}
	r = w.exec(t, "", nil, "bash", "-c",
		"ulimit -f 0; wid kubeconfig --provider=generic --audience=x --cluster-address=https://x.example -f new.yaml "+
			w.tokenFile(t, "x"))
	if r.code != cli.ExitMisconfigured || r.stdout != "" || !strings.Contains(r.stderr, "cannot be written") {
		t.Errorf("%+v", r)
	}
	if left, err := filepath.Glob(filepath.Join(w.home, ".wid-*")); err != nil || len(left) != 0 {
		t.Errorf("%q, %v", left, err)
	}
	r = w.exec(t, "", nil, "bash", "-c", "wid credential-process "+args+" >/dev/full")
	if r.code != cli.ExitOther || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("%+v", r)
	}
}

// Where nothing can be kept, people are told why every call makes an exchange:
// once, and not where programs read.
func TestCachingThatIsOff(t *testing.T) {
	w := newEnvironment(t)
	args := append([]string{"credential-process"}, w.inHand(t)...)
	for name, tc := range map[string]struct {
		env  []string
		more []string
		want string
	}{
		"relative XDG_CACHE_HOME": {env: []string{"XDG_CACHE_HOME=cache"}, want: "relative"},
		"no home":                 {env: []string{"HOME=", "XDG_CACHE_HOME="}, want: "HOME"},
		"relative home":           {env: []string{"HOME=home", "XDG_CACHE_HOME="}, want: `"home/.cache" is not absolute`},
		"said so":                 {env: []string{"HOME="}, more: []string{"--no-cache"}},
		"told where":              {env: []string{"HOME="}, more: []string{"--cache-dir=" + filepath.Join(w.home, "kept")}},
	} {
		before := w.mints()
		r := w.exec(t, "", tc.env, "wid", append(args, tc.more...)...)
		if r.code != 0 || !strings.HasPrefix(r.stdout, `{"Version":1`) || w.mints() != before+1 {
			t.Errorf("%s: %+v", name, r)
		}
		warned := strings.Count(r.stderr, "\n") == 1 && strings.Contains(r.stderr, tc.want) &&
			strings.Contains(r.stderr, "--cache-dir") && strings.Contains(r.stderr, "--no-cache")
		if tc.want == "" && r.stderr != "" || tc.want != "" && !warned {
			t.Errorf("%s: standard error is %q", name, r.stderr)
		}
	}
	for _, dir := range []string{"cache/workloadid", "home/.cache/workloadid"} {
		if _, err := os.Stat(filepath.Join(w.home, dir)); err == nil {
			t.Errorf("%s was created in the working directory", dir)
		}
	}
}

// Whatever goes wrong, the message ends with what to do.
func TestRemedies(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nothing is lost
	kubeconfig := func(name, server string) []string {
		file := filepath.Join(w.home, name)
		w.write(t, file, kubeconfigOf(t, server, nil, nil, nil, ""))
		return []string{"--provider=aws", "--region=eu-central-1", "--kubeconfig=" + file, "--service-account=tenant-a/app"}
	}
	missing := filepath.Join(w.home, "missing")
	w.write(t, missing, strings.Replace(kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, ""), "user: {}",
		"user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, interactiveMode: Never}}", 1))
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nobody listens": {kubeconfig("refused", "https://127.0.0.1:1"), cli.ExitUnavailable,
			"; check the cluster's address in the kubeconfig"},
		"nobody answers": {append(kubeconfig("silent", "http://"+silent.Addr().String()), "--timeout=2s"),
			cli.ExitUnavailable, "; raise --timeout"},
		"no plugin": {append(kubeconfig("x", ""), "--kubeconfig="+missing), cli.ExitUnavailable,
			"; check the cluster's address in the kubeconfig"},
		"too long a life": {append(w.inHand(t), "--provider=aws", "--session-duration=2h"), cli.ExitMisconfigured,
			"or raise the role's maximum session duration (--session-duration)"},
		"no identity": {[]string{"--provider=aws", "--region=eu-central-1"}, cli.ExitUnavailable,
			"; give this process an identity (IAM roles for service accounts or EKS Pod Identity), or name a ServiceAccount (--service-account)"},
		"not an authority": {append(w.inHand(t), "--provider=azure", "--authority-host=x"), cli.ExitMisconfigured,
			`"x" is refused`},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.wid(t, "", append([]string{"token"}, tc.args...)...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.want) || strings.Contains(r.stderr, "the controller") ||
				r.stdout != "" {
				t.Errorf("%+v", r)
			}
		})
	}
	unknown := &auth.Error{Reason: auth.ErrDenied, Message: "no", Code: "AADSTS999999"}
	if got := parsed(t).InTermsOfFlags(unknown).Error(); !strings.Contains(got,
		"https://login.microsoftonline.com/error") {
		t.Error(got)
	}
	unknown.Remedy = "do this"
	if got := parsed(t).InTermsOfFlags(unknown).Error(); !strings.HasSuffix(got, "; do this") {
		t.Error(got)
	}
}

// An annotation chose the audience, so a flag cannot mend it.
func TestAudienceOfAnAnnotation(t *testing.T) {
	w := newEnvironment(t)
	annotated := "--annotation=" + aws.RoleARNAnnotation + "=" + role("tenant-a")
	r := w.wid(t, "", "token", "--provider=aws", "--region=eu-central-1", w.tokenFile(t, aws.DefaultAudience), annotated,
		"--annotation="+aws.AudienceAnnotation+"=sts.amazon.com")
	want := `The annotation eks.amazonaws.com/audience of the ServiceAccount is "sts.amazon.com". Remove it: ` +
		"kubectl annotate sa -n tenant-a app eks.amazonaws.com/audience-\n"
	if r.code != cli.ExitDenied || !strings.HasSuffix(r.stderr, want) {
		t.Errorf("%+v", r)
	}
}

// What is gone when kubectl runs is not named to it.
func TestKubeconfigOfPipes(t *testing.T) {
	w := newEnvironment(t)
	w.write(t, filepath.Join(w.home, "kube.yaml"), kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, ""))
	for _, flags := range []string{
		"--kubeconfig=<(cat kube.yaml) --service-account=tenant-a/app",
		"--token-file=<(echo x)", "--token-file=/dev/stdin",
		"--token-file=kube.yaml --provider=exchange --exchange-endpoint=https://x.example --exchange-client-id=x --exchange-client-secret-file=<(echo x)",
	} {
		name, value, _ := strings.Cut(flags, "=<(")
		script := "wid kubeconfig --audience=x --cluster-address=https://x.example --provider=generic " + flags
		if value != "" {
			before, flag := name[:strings.LastIndex(name, "--")], name[strings.LastIndex(name, "--"):]
			script = "wid kubeconfig --audience=x --cluster-address=https://x.example --provider=generic " + before + flag +
				" <(" + value
		}
		if r := w.exec(t, "", nil, "bash", "-c", script); r.code != cli.ExitUsage || r.stdout != "" ||
			!strings.Contains(r.stderr, "when kubectl runs; name a file") {
			t.Errorf("%s: %+v", script, r)
		}
	}
	r := w.exec(t, "", []string{"AZURE_ENVIRONMENT_FILEPATH=/dev/zero"}, "wid", "kubeconfig", "--provider=azure",
		"--token-file=kube.yaml", "--cluster=x")
	if r.code != cli.ExitUsage || !strings.Contains(r.stderr, "AZURE_ENVIRONMENT_FILEPATH") {
		t.Errorf("%+v", r)
	}
}
