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
	"github.com/workloadid/workloadid/internal/testing/remedytest"
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

// Commands for the hub name the hub, and those for the cluster the cluster.
func TestRemediesNameTheirSide(t *testing.T) {
	for _, command := range commands(t) {
		if onHub := strings.Contains(command, " "+hubFlags); strings.HasPrefix(command, "wid hub ") && !onHub && !strings.HasPrefix(command, "wid hub policies") ||
			strings.HasPrefix(command, "wid join ") && onHub {
			t.Errorf("%s", command)
		}
	}
}

// The programs themselves parse every command; --help keeps them from running it.
func TestRemediesParse(t *testing.T) {
	wid, some := filepath.Join(t.TempDir(), "wid"), fake.NewFakeClient()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", wid, "../../../cmd/wid").CombinedOutput(); err != nil { //nolint:gosec // our own program
		t.Fatalf("%v: %s", err, out)
	}
	remedytest.Check(t, examine.Remedies(examine.Config{ClusterName: "cluster1", Hub: some, Spoke: some, HubFlags: hubFlags, SpokeFlags: spokeFlags}),
		[]string{hubFlags, spokeFlags}, func(words string) error {
			return exec.CommandContext(t.Context(), "/bin/sh", "-c", wid+" "+words+" --help").Run() //nolint:gosec // our own commands
		})
	remedytest.Unexamined(t, examine.Remedies(examine.Config{ClusterName: "cluster1"}))
}
