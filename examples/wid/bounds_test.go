package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

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

// What somebody else has written is left alone; what wid has written is replaced, privately, and links are not followed.
func TestSaveKubeconfig(t *testing.T) {
	dir := t.TempDir()
	id := &identity{app: &app{stderr: &bytes.Buffer{}}}
	foreign, own, link := filepath.Join(dir, "foreign"), filepath.Join(dir, "own"), filepath.Join(dir, "link")
	for file, content := range map[string]string{foreign: "precious", own: "args: [exec-credential]"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	if err := id.save(foreign, []byte("new")); err == nil {
		t.Error("somebody else's file was overwritten")
	}
	if err := id.save(link, []byte("exec-credential: new")); err != nil {
		t.Error(err)
	}
	if err := id.save(filepath.Join(dir, "new"), []byte("exec-credential: new")); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]string{foreign: "precious", own: "args: [exec-credential]", link: "exec-credential: new"} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	for _, file := range []string{link, filepath.Join(dir, "new")} {
		if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
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
