package issuercmd

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// run runs wid issuer for a cluster that nothing answers for.
func run(ctx context.Context, t *testing.T, args ...string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content :=
		`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := NewIssuer()
	cmd.SetArgs(append(args, "--kubeconfig="+file))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	return cmd.ExecuteContext(ctx)
}

// An address may be a name, or one of IPv6 with and without brackets.
func TestResolve(t *testing.T) {
	if _,
		err := (&Outside{resolve: []string{"i.example:443:[2001:db8::1]", "i.example:443:2001:db8::1",
		"i.example:443:front.example"}}).Client(); err != nil {
		t.Error(err)
	}
}

func TestInterruptedWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, t, "publish", "--watch", "--issuer=https://i.example", "--to=file://"+t.TempDir())
	if !errors.Is(err, cli.ErrInterrupted) {
		t.Errorf("it ends with %v", err)
	}
}
