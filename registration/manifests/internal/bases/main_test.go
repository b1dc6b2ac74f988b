package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

var config = filepath.Join("..", "..", "..", "..", "config")

func TestBasesAreGenerated(t *testing.T) {
	files, err := files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(config, name)); err != nil || string(got) != want {
			t.Errorf("config/%s differs from registration/manifests: run make generate (%v)", name, err)
		}
	}
}

// overlay sets the name of the cluster, as docs/registration.md shows.
func overlay(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	base, err := filepath.Rel(dir, filepath.Join(root, "config", "agent"))
	if err != nil {
		t.Fatal(err)
	}
	const remote = "https://github.com/workloadid/workloadid//config/agent?ref=v0.1.0"
	documented := document.Read(t, "docs/registration.md").Section("With kustomize").Block("yaml", "kind: Kustomization")
	files := map[string]string{"kustomization.yaml": document.Replace(t, documented, remote, base),
		"kubeconfig": "apiVersion: v1\n"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// relayOverlay adds the relay to the hub.
func relayOverlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	from := func(parts ...string) string {
		path, err := filepath.Abs(filepath.Join(append([]string{config}, parts...)...))
		if err == nil {
			path, err = filepath.Rel(dir, path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	content := "resources: [" + from("hub") + "]\ncomponents: [" + from("hub", "relay") + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Each base is applied to a real API server. The agent's is refused until an
// overlay names the cluster.
func TestBasesOnARealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t)
	for _, row := range []struct{ name, dir, refused string }{
		{"hub", filepath.Join(config, "hub"), ""},
		{"hub with a relay", relayOverlay(t), ""},
		{"agent", filepath.Join(config, "agent"), "set the name of the cluster in an overlay"},
		{"agent with an overlay", overlay(t), ""},
		{"controller", filepath.Join(config, "controller"), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), filepath.Join(kubetest.Assets(t), "kubectl"),
				"--kubeconfig="+cluster.Kubeconfig(t), "apply", "--server-side", "-k",
				row.dir) //nolint:gosec // a program of our own build
			out, err := cmd.CombinedOutput()
			if (err != nil) != (row.refused != "") || !strings.Contains(string(out), row.refused) {
				t.Errorf("%v\n%s", err, out)
			}
			if row.refused == "" && !strings.Contains(string(out), "deployment.apps/") {
				t.Errorf("it has no Deployment:\n%s", out)
			}
		})
	}
}
