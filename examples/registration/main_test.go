package main

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

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

func TestDemo(t *testing.T) {
	kubetest.Assets(t)
	dir := t.TempDir()
	out, err := program(t, dir).CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	checkEmpty(t, dir)
	text := string(out)
	rest := text
	for _, want := range []string{
		`^\nA cluster joins a hub`,
		`Two control planes run`,
		`ManagedCluster "cluster1" appears`,
		`accepted +false\n`,
		`administrator accepts`,
		`Approved`,
		`user \(CN\) +system:open-cluster-management:cluster1:[a-z0-9]+\n`,
		`group \(O\) +system:open-cluster-management:cluster1\n`,
		`expires +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC`,
		`own namespace:\s+allowed`,
		`neighbour "cluster2": forbidden`,
		`asked by +system:open-cluster-management:cluster1:`,
		`creates the add-on "search"`,
		`driver +token\n`,
		`user +system:serviceaccount:cluster1:cluster1-search-agent\n`,
		`Elsewhere:\s+forbidden`,
		`refused with 401 after \d`,
		`administrator denies`,
		`HubAcceptedManagedCluster is False: HubClusterAdminDenied`,
	} {
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
	if secret := regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}|eyJ|PRIVATE|BEGIN`).FindString(text); secret != "" {
		t.Error("prints a secret")
	}
	if t.Failed() {
		t.Log(text)
	}
}
