package credentials

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// A kubeconfig that has wid run for itself comes to an end.
func TestDepthOfKubeconfigs(t *testing.T) {
	t.Setenv(DepthVariable, "")
	for n := range maxDepth {
		if err := countDepth(); err != nil || os.Getenv(DepthVariable) != strconv.Itoa(n+1) {
			t.Errorf("level %d: %v, %s", n, err, os.Getenv(DepthVariable))
		}
	}
	if err := countDepth(); err == nil {
		t.Error("there is no end")
	}
}

// What somebody else has written is left alone, also what was merged with
// something of wid's; what wid has written is replaced, privately, and links
// are not followed.
func TestSaveKubeconfig(t *testing.T) {
	dir := t.TempDir()
	id := &Identity{App: &App{Stderr: &bytes.Buffer{}}}
	config := func(command string, merged bool) string {
		c := ownKubeconfig("wid", &clientcmdapi.Cluster{Server: "https://prod.example"}, command,
			[]string{"exec-credential"}, nil)
		if merged {
			c.Clusters["other"] = &clientcmdapi.Cluster{Server: "https://other.example"}
		}
		content, err := clientcmd.Write(*c)
		if err != nil {
			t.Fatal(err)
		}
		if merged {
			return string(content)
		}
		return ownMark + string(content)
	}
	foreign := map[string]string{"foreign": "precious", "empty": "", "merged": config("wid", true),
		"like": strings.TrimPrefix(config("doctl", false), ownMark), "large": strings.Repeat("x", 1<<20+1)}
	for name, content := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	own, link, next := filepath.Join(dir, "own"), filepath.Join(dir, "link"), config("/usr/bin/wid", false)
	err := errors.Join(os.WriteFile(own, []byte(config("wid", false)), 0o644), os.Symlink(own, link),
		os.Symlink("foreign", filepath.Join(dir, "foreign-link")), os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	if err != nil {
		t.Fatal(err)
	}
	foreign["foreign-link"] = "precious"
	for name, content := range foreign {
		if err := id.save(filepath.Join(dir, name), []byte(next)); err == nil ||
			cli.ExitCode(t.Context(), err) != cli.ExitUsage {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			t.Errorf("%s was overwritten, %v", name, err)
		}
	}
	for _, file := range []string{link, filepath.Join(dir, "new"), filepath.Join(dir, "dangling")} {
		if err := id.save(file, []byte(next)); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != next {
			t.Errorf("%s: %q, %v", file, got, err)
		}
		if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	if got, err := os.ReadFile(own); err != nil || string(got) != config("wid", false) {
		t.Errorf("the link was followed: %q, %v", got, err)
	}
	if err := id.save(own, []byte(next)); err != nil {
		t.Error(err)
	}
	for _, file := range []string{dir, "/dev/null", filepath.Join(own, "x")} {
		if err := id.save(file, []byte(next)); err == nil {
			t.Errorf("%s was written", file)
		}
	}
}
