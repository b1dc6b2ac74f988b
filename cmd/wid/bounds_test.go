package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/auth"
)

// Work that knows nothing of contexts, such as reading a named pipe, does not outlast the time-out by much.
func TestWorkThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		end := make(chan struct{})
		start := time.Now()
		answer, err := within(ctx, func(context.Context) ([]byte, error) { <-end; return []byte("late"), nil })
		if answer != nil || !errors.Is(err, auth.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Minute+grace {
			t.Errorf("after %s: %q, %v", time.Since(start), answer, err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, interrupt)
		start = time.Now()
		answer, err = within(ctx, func(context.Context) ([]byte, error) { <-end; return []byte("late"), nil })
		if answer != nil || !errors.Is(err, errInterrupted) || time.Since(start) > time.Second+grace/5 { // for the state of a wait
			t.Errorf("after %s: %q, %v", time.Since(start), answer, err)
		}
		close(end)
		answer, err = within(t.Context(), func(context.Context) ([]byte, error) { return []byte("answer"), nil })
		if string(answer) != "answer" || err != nil {
			t.Errorf("got %q, %v", answer, err)
		}
	})
}

// A kubeconfig that has wid run for itself comes to an end.
func TestDepthOfKubeconfigs(t *testing.T) {
	t.Setenv(depthVariable, "")
	for n := range maxDepth {
		if err := countDepth(); err != nil || os.Getenv(depthVariable) != strconv.Itoa(n+1) {
			t.Errorf("level %d: %v, %s", n, err, os.Getenv(depthVariable))
		}
	}
	if err := countDepth(); err == nil {
		t.Error("there is no end")
	}
}

// What somebody else has written is left alone, also what was merged with something of wid's; what wid has written is
// replaced, privately, and links are not followed.
func TestSaveKubeconfig(t *testing.T) {
	dir := t.TempDir()
	id := &identity{app: &app{stderr: &bytes.Buffer{}}}
	config := func(command string, merged bool) string {
		c := ownKubeconfig("wid", &clientcmdapi.Cluster{Server: "https://prod.example"}, command, []string{"exec-credential"}, nil)
		if merged {
			c.Clusters["other"] = &clientcmdapi.Cluster{Server: "https://other.example"}
		}
		content, err := clientcmd.Write(*c)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	foreign := map[string]string{"foreign": "precious", "empty": "", "merged": config("wid", true),
		"like": strings.Replace(config("doctl", false), installHint, "", 1), "large": strings.Repeat("x", maxFile+1)}
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
		if err := id.save(filepath.Join(dir, name), []byte(next)); err == nil || exitCode(t.Context(), err) != exitUsage {
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

func TestFilesAreReadWithinBounds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readBounded(file); !errors.Is(err, errTooLarge) {
		t.Errorf("got %v", err)
	}
}
