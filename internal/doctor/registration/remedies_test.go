package registration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	examine "github.com/workloadid/workloadid/internal/doctor/registration"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

const hubFlags, spokeFlags = "--kubeconfig 'a b/hub.yaml' --context hub@1", "--kubeconfig cluster.yaml --context managed-0"

// Every reason has one row in the table and stands on the page.
func TestReasons(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Sorted(slices.Values(examine.Reasons()))
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		t.Errorf("a reason stands in two rows of %q", all)
	}
	for _, reason := range all {
		if !strings.Contains(string(page), "`"+reason+"`") {
			t.Errorf("docs/doctor.md lacks %s", reason)
		}
	}
}

// commands returns all commands of remedies for two contexts.
func commands(t *testing.T) (all []string) {
	t.Helper()
	some := fake.NewFakeClient()
	for _, r := range examine.Remedies(examine.Config{ClusterName: "cluster1", Hub: some, Spoke: some, HubFlags: hubFlags, SpokeFlags: spokeFlags}) {
		all = append(all, r.Commands...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Each command names one side, with the flags that the doctor was given.
func TestRemediesNameTheirSide(t *testing.T) {
	for _, command := range commands(t) {
		onHub, onSpoke := strings.Contains(command, " "+hubFlags), strings.Contains(command, " "+spokeFlags)
		switch program, _, _ := strings.Cut(command, " "); {
		case program == "sudo", strings.HasPrefix(program, "--"), strings.HasPrefix(command, "wid hub policies"):
		case onHub == onSpoke, strings.Contains(command, "wid hub") && !onHub, strings.Contains(command, "wid join") && !onSpoke:
			t.Errorf("%s", command)
		}
	}
}

// What is lost is said before each command that deletes, and such a command is not printed for a cluster that was not examined.
func TestDestructiveRemedies(t *testing.T) {
	isDestructive := func(command string) bool {
		return strings.Contains(command, " delete ") || strings.Contains(command, "hub deny")
	}
	some := fake.NewFakeClient()
	found := 0
	for _, r := range examine.Remedies(examine.Config{ClusterName: "cluster1", Hub: some, Spoke: some}) {
		if slices.ContainsFunc(r.Commands, isDestructive) {
			if found++; !strings.Contains(r.Text, "You lose ") {
				t.Errorf("%+v", r)
			}
		}
	}
	if found == 0 {
		t.Error("there are none")
	}
	for _, r := range examine.Remedies(examine.Config{ClusterName: "cluster1"}) {
		if slices.ContainsFunc(r.Commands, isDestructive) {
			t.Errorf("%+v", r)
		}
	}
}

// The programs themselves parse the flags of every command; --help keeps them from running it.
func TestRemediesParse(t *testing.T) {
	dir := t.TempDir()
	programs := map[string]string{"wid": filepath.Join(dir, "wid"), "kubectl": filepath.Join(kubetest.Assets(t), "kubectl")}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", programs["wid"], "../../../cmd/wid").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	parsed := map[string]int{}
	parse := func(command string) error {
		name, arguments, _ := strings.Cut(command, " ")
		program, ok := programs[name]
		if !ok {
			return nil
		}
		parsed[name]++
		return exec.CommandContext(t.Context(), "/bin/sh", "-c", program+" "+arguments+" --help").Run() //nolint:gosec // our own commands
	}
	for _, command := range commands(t) {
		if err := parse(command); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	for _, wrong := range []string{"wid join --no-such-flag", "kubectl get pods --no-such-flag"} {
		if parse(wrong) == nil {
			t.Errorf("%s passes", wrong)
		}
	}
	if parsed["wid"] < 8 || parsed["kubectl"] < 10 {
		t.Errorf("%v", parsed)
	}
}
