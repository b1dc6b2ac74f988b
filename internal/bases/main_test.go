package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

var config = filepath.Join("..", "..", "config")

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
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "registration.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "```yaml\n# kustomization.yaml of a cluster\n")
	section, _, found := strings.Cut(section, "```")
	if !found {
		t.Fatal("docs/registration.md has no overlay")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	base, err := filepath.Rel(dir, filepath.Join(root, "config", "agent"))
	if err != nil {
		t.Fatal(err)
	}
	remote, _, _ := strings.Cut(section[strings.Index(section, "https://"):], "\n")
	for name, text := range map[string]string{"kustomization.yaml": strings.Replace(section, remote, base, 1), "kubeconfig": "apiVersion: v1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Each base is applied to a real API server. The agent's is refused until an overlay names the cluster.
func TestBasesOnARealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t)
	for _, row := range []struct{ name, dir, refused string }{
		{"hub", filepath.Join(config, "hub"), ""},
		{"agent", filepath.Join(config, "agent"), "set the name of the cluster in an overlay"},
		{"agent with an overlay", overlay(t), ""},
		{"controller", filepath.Join(config, "controller"), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), filepath.Join(kubetest.Assets(t), "kubectl"), "--kubeconfig="+cluster.Kubeconfig(t), "apply", "--server-side", "-k", row.dir) //nolint:gosec // a program of our own build
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
