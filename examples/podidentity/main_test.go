package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// asProgram makes the test binary run the program instead of the tests.
const asProgram = "PODIDENTITY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == appCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestArgumentIsRefused(t *testing.T) {
	if err := run(t.Context(), []string{"server"}, io.Discard, io.Discard); err == nil ||
		!strings.Contains(err.Error(), `unexpected argument "server"`) {
		t.Error(err)
	}
}

// The control plane takes seconds to start, and minutes the first time.
func TestTheDemoSaysAtOnceWhatItDoes(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TMPDIR", t.TempDir()) // envtest leaves folders behind if it cannot start
	var out strings.Builder
	if err := run(t.Context(), nil, &out, io.Discard); err == nil ||
		!strings.Contains(out.String(), "Starting a control plane") {
		t.Errorf("%v, %s", err, &out)
	}
}

// checkEmpty reports files that the demo left behind.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

// cancelAfter cancels once the demo has printed a text.
type cancelAfter struct {
	strings.Builder
	text   string
	cancel context.CancelFunc
}

func (w *cancelAfter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.cancel()
	}
	return w.Builder.Write(p)
}

func TestInterruptedDemoRemovesEverything(t *testing.T) {
	kubetest.Assets(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := run(ctx, nil, &cancelAfter{text: " 1. ", cancel: cancel}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	checkEmpty(t, dir)
}

// The demo uses neither the machine's AWS configuration nor the network: each
// of these would make an AWS client fail that reads it.
func TestDemo(t *testing.T) {
	kubetest.Assets(t)
	dir, home := t.TempDir(), t.TempDir()
	for _, file := range []string{"config", "credentials"} {
		if err := os.MkdirAll(filepath.Join(home, ".aws", file), 0o700); err != nil { // a folder cannot be read
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir, "HOME="+home, "AWS_REGION=nowhere", "AWS_ROLE_ARN=none",
		"AWS_WEB_IDENTITY_TOKEN_FILE=/nonexistent", "AWS_ENDPOINT_URL=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1")
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil || errOut.Len() > 0 {
		t.Errorf("%v: %s", err, &errOut)
	}
	checkEmpty(t, dir)
	if !strings.Contains(string(out), document.Read(t, "docs/podidentity.md").Section("Try it").Block("text", "answer")) {
		t.Error("docs/podidentity.md shows another sixth step")
	}
	checkText(t, string(out),
		`RoleAssumable is True[^"]*"demo\.team-a\.reporting"`,
		`answer +arn:aws:sts::123456789012:assumed-role/reporting/\s+demo\.team-a\.reporting\n`,
		`does\s+not\s+allow\s+namespace\s+"team-a"\s+the\s+role\s+"arn:aws:iam::123456789012:role/admin"`,
		`Conflict is True`,
		`answer +403 Conflict`,
		`next pod +admission webhook "pods\.iam\.aws\.k8s\.io"\s+denied`,
		`answer +401 NotAttested`,
		`Done in \d+s`)
}

// checkText checks what a demo prints, in this order.
func checkText(t *testing.T, text string, wants ...string) {
	t.Helper()
	rest := text
	for _, want := range wants {
		at := regexp.MustCompile(want).FindStringIndex(rest)
		if at == nil {
			t.Errorf("lacks, in this order, %s", want)
			continue
		}
		rest = rest[at[1]:]
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
	if secret := regexp.MustCompile(`eyJ|AKIA|ASIA|PRIVATE|BEGIN|[A-Z2-7]{26}`).FindString(text); secret != "" {
		t.Error("prints a secret")
	}
	if t.Failed() {
		t.Log(text)
	}
}
