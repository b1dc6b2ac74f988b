package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
)

// A program that calls its plugin again and again asks the provider once in a few seconds, and is told the same each time.
func TestARefusalIsKeptForAMoment(t *testing.T) {
	w := newWorld(t)
	a := &credentials.App{HTTPClient: w.cloud.Client()}
	args := []string{"credential-process", w.tokenFile(t, aws.DefaultAudience), "--region=eu-central-1",
		"--annotation=" + aws.RoleARNAnnotation + "=" + role("nobodys"), "--cache-dir=" + filepath.Join(w.home, "kept")}
	call := func(more ...string) error {
		root := rootOf(a)
		root.SetArgs(append(args, more...))
		root.SetOut(io.Discard)
		return root.ExecuteContext(t.Context())
	}
	var e *auth.Error
	for n := range 5 {
		err := call()
		if !errors.As(err, &e) || cli.ExitCode(t.Context(), err) != cli.ExitDenied || e.StatusCode != 403 || e.Code != "AccessDenied" ||
			!strings.Contains(err.Error(), "trust policy") || strings.Contains(err.Error(), "a few seconds ago") != (n > 0) {
			t.Fatalf("call %d: %v", n, err)
		}
	}
	first := w.mints()
	if first == 0 || first > 4 { // the library tries again by itself
		t.Errorf("%d exchanges", first)
	}
	files, err := filepath.Glob(filepath.Join(w.home, "kept", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if content, err := os.ReadFile(files[0]); err != nil || strings.Contains(string(content), "eyJ0") {
		t.Errorf("%v: %s", err, content)
	}
	// Whoever cannot wait says so; nothing else is kept from asking.
	if err := call("--no-cache"); err == nil || w.mints() == first {
		t.Errorf("%v after %d exchanges", err, w.mints())
	}
	w.cloud.AWS().SetRole(role("nobodys"), w.trustOfApp())
	if err := call("--no-cache"); err != nil {
		t.Error(err)
	}
}
