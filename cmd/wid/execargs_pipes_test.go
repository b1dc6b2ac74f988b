package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// What is gone when kubectl runs is not named to it.
func TestKubeconfigOfPipes(t *testing.T) {
	w := newWorld(t)
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
			script = "wid kubeconfig --audience=x --cluster-address=https://x.example --provider=generic " + before + flag + " <(" + value
		}
		if r := w.exec(t, "", nil, "bash", "-c", script); r.code != cli.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, "when kubectl runs; name a file") {
			t.Errorf("%s: %+v", script, r)
		}
	}
	r := w.exec(t, "", []string{"AZURE_ENVIRONMENT_FILEPATH=/dev/zero"}, "wid", "kubeconfig", "--provider=azure", "--token-file=kube.yaml", "--cluster=x")
	if r.code != cli.ExitUsage || !strings.Contains(r.stderr, "AZURE_ENVIRONMENT_FILEPATH") {
		t.Errorf("%+v", r)
	}
}
