package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) {
	code := kubetest.Main(m).Run()
	_ = os.RemoveAll(built.dir)
	os.Exit(code)
}

// wid runs the program and returns what it prints.
func wid(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	return widWith(t, strings.NewReader(stdin), args...)
}

func widWith(t *testing.T, stdin io.Reader, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetIn(stdin)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := wid(t, "", args...)
	if err != nil {
		t.Fatalf("wid %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// A token of a real cluster, from its creation to its end.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	kubeconfig := "--kubeconfig=" + kubetest.Start(t).Kubeconfig(t)
	token := must(t, "bootstrap", "create", kubeconfig, "--description=of TestBootstrap")
	id, secret, _ := strings.Cut(token, ".")
	if out := must(t, "bootstrap", "list", kubeconfig); !strings.Contains(out, id+".[redacted]") ||
		strings.Contains(out, secret) {
		t.Errorf("got\n%s\nwant the token %s without its secret", out, id)
	}
	if out := must(t, "bootstrap", "delete", kubeconfig, id); !strings.Contains(out, id) {
		t.Errorf("got %s, want %s deleted", out, id)
	}
}
