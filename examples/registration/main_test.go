package main

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// asProgram makes the test binary run the program instead of the tests.
const asProgram = "REGISTRATION_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program returns the program. Its temporary files are in dir.
func program(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...) //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir)
	return cmd
}

// checkEmpty reports files that the demo left behind.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

func TestArgumentsThatCannotWork(t *testing.T) {
	if out, err := program(t, t.TempDir(), "-auth=magic").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "use no arguments") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestInterruptedDemoRemovesEverything(t *testing.T) {
	t.Parallel()
	kubetest.Assets(t)
	dir := t.TempDir()
	cmd := program(t, dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), " 1. ") {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted demo succeeds")
	}
	checkEmpty(t, dir)
}

// The demo fails where a credential has another effect than it prints.
func TestDemo(t *testing.T) {
	t.Parallel()
	kubetest.Assets(t)
	dir := t.TempDir()
	out, err := program(t, dir).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	checkEmpty(t, dir)
	if regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}|eyJ|PRIVATE|BEGIN`).Match(out) {
		t.Error("prints a secret")
	}
}
