package bootstrapcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// execute returns what wid bootstrap prints to both streams.
func execute(t *testing.T, stdin io.Reader, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewBootstrap()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cli.Finish(cmd)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := execute(t, strings.NewReader(""), args...)
	if err != nil {
		t.Fatalf("wid bootstrap %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

// The commands against a real cluster whose kube-controller-manager signs.
func TestCommands(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	cluster.ControllerManager(t, "bootstrapsigner", "tokencleaner")
	kubeconfig := "--kubeconfig=" + cluster.Kubeconfig(t)
	bootstrap := func(args ...string) string { return must(t, append([]string{kubeconfig}, args...)...) }

	if out := bootstrap("publish"); !strings.HasPrefix(out, "cluster-info names https://127.0.0.1:") ||
		!strings.Contains(out, "wid: other machines cannot reach") {
		t.Error(out)
	}
	token := bootstrap("create", "--ttl=1h", "--description=for the test")
	if !regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`).MatchString(token) {
		t.Fatalf("created %q", token)
	}
	if out := bootstrap("list") + bootstrap("list", "-o=json"); strings.Contains(out, token[7:]) ||
		!strings.Contains(out, token[:6]+".[redacted]") {
		t.Errorf("without --reveal the list is %s", out)
	}
	if out := bootstrap("list",
		"--reveal"); !regexp.MustCompile(regexp.QuoteMeta(token) +
		` +(5\dm\d+s|1h0m0s) +20\S+Z +authentication,signing +system:bootstrappers:kubeadm:default-node-token +for the test`).MatchString(out) {
		t.Error(out)
	}
	for format, unmarshal := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.Unmarshal(b, v) }} {
		var list struct{ Items []Listed }
		if err := unmarshal([]byte(bootstrap("list", "--reveal", "-o", format)), &list); err != nil || len(list.Items) != 1 ||
			list.Items[0].Token != token {
			t.Errorf("%s: %+v, %v", format, list, err)
		}
	}
	if out := bootstrap("join-command", token, "--server=https://10.0.0.1:6443"); !strings.HasPrefix(out,
		"kubeadm join 10.0.0.1:6443 --token ") || strings.Contains(out, "warning") {
		t.Error(out)
	}
	join := strings.Fields(bootstrap("join-command", token))
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	hint := "kubectl --kubeconfig " + file + ` --token "$TOKEN" get --raw /version`
	if out := must(t, "discover", "127.0.0.1:1", join[2], "--token", token, "--ca-cert-hash", join[6], "-f",
		file); !strings.Contains(out, "wrote "+file) || !strings.Contains(out, hint) {
		t.Errorf("discover says %q", out)
	}
	command := "TOKEN=" + token + "; " + os.Getenv("KUBEBUILDER_ASSETS") + "/" + hint
	//nolint:gosec // the command of the hint
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput(); err != nil {
		t.Errorf("the hint fails: %v: %s", err, out)
	}
	stat, err := os.Stat(file)
	if err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", stat, err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := execute(t, strings.NewReader(string(content)), "discover", "--discovery-file", "-"); err != nil ||
		out != string(content) {
		t.Errorf("from standard input: %v\n%s", err, out)
	}
	// A token of kubeadm's is one of ours.
	created, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubeadm"), "token",
		"create", kubeconfig).Output() //nolint:gosec // a program of our own build
	if err != nil {
		t.Fatal(err)
	}
	if theirs := strings.TrimSpace(string(created)); !strings.Contains(bootstrap("list", "--reveal"), theirs) ||
		!strings.Contains(bootstrap("delete", theirs), theirs[:6]) {
		t.Errorf("their token %q is not listed or not deleted", theirs)
	}
	// A generated token exists nowhere until it is created.
	generated := must(t, "generate", "--kubeconfig=/nonexistent")
	if generated == must(t, "generate") || strings.Contains(bootstrap("list"), generated[:6]) {
		t.Errorf("generate printed %q twice, or created it", generated)
	}
	if out := bootstrap("create", generated); out != generated {
		t.Errorf("create printed %q, want the generated %q", out, generated)
	}
	bootstrap("delete", generated)
	// A token that only signs, and descriptions that would change the table or
	// the terminal.
	signs := bootstrap("create", "--usages=signing", "--description=x\ny\tz\x1b[31mred")
	out := bootstrap("list", "--reveal")
	if !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(signs)+` .* signing +x y z \[31mred$`).MatchString(out) ||
		strings.ContainsAny(out, "\t\x1b") {
		t.Errorf("%q", out)
	}
	bootstrap("delete", signs)
	id := token[:6]
	if out := bootstrap("delete", id); !strings.Contains(out, id) {
		t.Error(out)
	}
	if out := bootstrap("list"); strings.Contains(out, id) {
		t.Error(out)
	}
}

func TestMistakes(t *testing.T) {
	const token = "abcdef.0123456789abcdef"
	for want, tc := range map[string]struct {
		code int
		args []string
	}{
		"pass --kubeconfig":  {cli.ExitMisconfigured, []string{"list", "--kubeconfig=/nonexistent"}},
		"is a directory":     {cli.ExitMisconfigured, []string{"publish", "--kubeconfig=."}},
		"--ttl is 0 or more": {cli.ExitUsage, []string{"create", "--ttl=-1h"}},
		"<id>.<secret>":      {cli.ExitUsage, []string{"create", "hunter2"}},
		"bootstrap token is": {cli.ExitUsage,
			[]string{"discover", "x:1", "--token=x.hunter2", "--unsafe-skip-ca-verification"}},
		"at least 1 arg":  {cli.ExitUsage, []string{"delete"}},
		"one of --token":  {cli.ExitUsage, []string{"discover", "127.0.0.1:1"}},
		"name the server": {cli.ExitUsage, []string{"discover", "--token", token}},
		"--ca-cert-hash":  {cli.ExitUsage, []string{"discover", "127.0.0.1:1", "--token", token}},
		"64 hexadecimal digits": {cli.ExitUsage,
			[]string{"discover", "127.0.0.1:1", "--token", token, "--ca-cert-hash", "sha256:12"}},
		"neither a server nor pins": {cli.ExitUsage, []string{"discover", "127.0.0.1:1", "--discovery-file", "x"}},
		"only https URLs":           {cli.ExitOther, []string{"discover", "--discovery-file", "http://127.0.0.1:1/x"}},
		"nor what goes with them": {cli.ExitUsage,
			[]string{"discover", "--discovery-file", "x", "--unsafe-skip-ca-verification"}},
		"--timeout is more than 0": {cli.ExitUsage,
			[]string{"discover", "127.0.0.1:1", "--token", token, "--unsafe-skip-ca-verification", "--timeout=0"}},
		"in a folder that exists": {cli.ExitUsage,
			[]string{"discover", "127.0.0.1:1", "--token", token, "--unsafe-skip-ca-verification", "-f", "/nonexistent/x.yaml"}},
		`not "signin"`:            {cli.ExitUsage, []string{"create", "--usages=signin"}},
		"set but empty":           {cli.ExitUsage, []string{"create", "--usages="}},
		`unknown command "bogus"`: {cli.ExitUsage, []string{"bogus"}},
	} {
		out, err := execute(t, strings.NewReader(""), tc.args...)
		if err == nil || cli.ExitCode(t.Context(), err) != tc.code || !strings.Contains(err.Error(), want) ||
			strings.Contains(out+err.Error(), token) || strings.Contains(out+err.Error(), "hunter2") {
			t.Errorf("wid bootstrap %q: got %v, want code %d and %q\n%s", tc.args, err, tc.code, want, out)
		}
	}
}

// Standard input that does not end is not waited for any longer than --timeout
// says.
func TestDiscoverTimesOut(t *testing.T) {
	never, end := io.Pipe()
	defer end.Close() //nolint:errcheck // ends the read that was left
	if _, err := execute(t, never, "discover", "--discovery-file", "-", "--timeout", "1ms"); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
