package podcmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

const serverRole = "--server-role=arn:aws:iam::123456789012:role/iam-credentials-provider"

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewPodIdentity()
	cmd.SetArgs(append([]string{"trust-policy"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cli.Finish(cmd)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTrustPolicyFlagsThatCannotWork(t *testing.T) {
	const prod = "--cluster=prod"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no server role":           {[]string{"b", prod}, "--server-role is missing"},
		"cluster that is no label": {[]string{"b", serverRole, "--cluster=a.b"}, `--cluster "a.b"`},
		"no binding":               {[]string{serverRole, prod}, "accepts 1 arg"},
		"two bindings":             {[]string{"b", "c", serverRole, prod}, "accepts 1 arg"},
		"server role that is a session": {[]string{"b", prod, "--server-role=arn:aws:sts::123456789012:assumed-role/x/y"},
			`--server-role "arn:aws:sts::123456789012:assumed-role/x/y" is not`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := execute(t, test.args...)
			if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUsage || !strings.Contains(err.Error(), test.want) ||
				out != "" {
				t.Errorf("got %v, want code %d and %q; it prints %s", err, cli.ExitUsage, test.want, out)
			}
		})
	}
}

// The namespace is that of the flag, of the context, or else default.
func TestNamespaceOfTheBinding(t *testing.T) {
	for name, test := range map[string]struct{ context, flag, want string }{
		"neither":        {"", "", "default"},
		"of the context": {"team-c", "", "team-c"},
		"of the flag":    {"team-c", "--namespace=team-b", "team-b"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			content := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":` +
				`{"cluster":"c","namespace":"` + test.context +
				`"}}],"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}]}`
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			args := strings.Fields("reporting --cluster=prod " + serverRole + " --kubeconfig=" + file + " " + test.flag)
			_, err := execute(t, args...)
			if want := `read IAMBinding "` + test.want + `/reporting"`; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}
