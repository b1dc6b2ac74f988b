package regtest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// Kubectl runs the kubectl of the control plane's version, and returns what it
// prints.
func Kubectl(t *testing.T, kubeconfig, stdin string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	//nolint:gosec // a program of our own build
	cmd := exec.CommandContext(t.Context(), filepath.Join(kubetest.Assets(t), "kubectl"),
		append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl %q: %v\n%s%s", args, err, &stdout, &stderr)
	}
	return stdout.String()
}

// KubectlApply applies manifests from the server's side. A conflict fails it.
func KubectlApply(t *testing.T, kubeconfig, manifests string) {
	t.Helper()
	Kubectl(t, kubeconfig, manifests, "apply", "--server-side", "--filename=-")
}
