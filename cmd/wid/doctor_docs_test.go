package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	identitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/identity"
	podidentitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/podidentity"
	registrationdoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/registration"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

const doctorPage = "docs/doctor.md"

func TestDocumentedChecks(t *testing.T) {
	t.Parallel()
	checks := map[string][]doctor.Check{"`wid doctor`": identitydoctor.Checks(),
		"`wid doctor registration`": registrationdoctor.Checks(),
		"`wid doctor pod-identity`": podidentitydoctor.Checks()}
	for _, row := range document.Read(t, doctorPage).Section("Chains").Rows("Command") {
		if got := document.Names(row[1]); !slices.Equal(got, names(checks[row[0]])) {
			t.Errorf("%s has the checks %q, not %q", row[0], names(checks[row[0]]), got)
		}
		delete(checks, row[0])
	}
	if len(checks) > 0 {
		t.Errorf("%s lacks %d commands", doctorPage, len(checks))
	}
}

func names(checks []doctor.Check) (ids []string) {
	for _, c := range checks {
		ids = append(ids, c.ID)
	}
	return ids
}

// The table has a row for each reason, and no other. Its checks exist.
func TestDocumentedReasons(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join("..", "..", "auth", "cause", "reason.go"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, match := range regexp.MustCompile(`(?m)^\t\w+ +Reason = "(\w+)"$`).FindAllStringSubmatch(string(content), -1) {
		want = append(want, match[1])
	}
	for _, row := range document.Read(t, doctorPage).Section("Reasons").Rows("Reason") {
		got = append(got, document.Names(row[0])...)
		for _, check := range document.Names(row[1]) {
			if !slices.Contains(names(identitydoctor.Checks()), check) {
				t.Errorf("%s: %s names the check %q", row[0], doctorPage, check)
			}
		}
	}
	if len(want) < 40 || !slices.Equal(got, want) {
		t.Errorf("%s has the reasons\n%q instead of\n%q", doctorPage, got, want)
	}
}

// Each printed command exists, with its flags.
func TestDocumentedCommandsParse(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	printed, found := regexp.MustCompile(`(?:^| -- |\| |\()wid ([^|>)&;]+)`), 0
	for _, page := range append(pages, filepath.Join("..", "..", "README.md")) {
		name, err := filepath.Rel(filepath.Join("..", ".."), page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range document.Read(t, name).Blocks("sh", "") {
			for line := range strings.Lines(strings.ReplaceAll(block.Text, "\\\n", "")) {
				for _, match := range printed.FindAllStringSubmatch(line, -1) {
					found++
					cmd, args, err := newRoot().Find(strings.Fields(match[1]))
					if err == nil {
						err = cmd.ParseFlags(filledIn(args))
					}
					if err == nil {
						err = cmd.ValidateArgs(cmd.Flags().Args())
					}
					if err != nil {
						t.Errorf("%s: %s: %v", name, match[0], err)
					}
				}
			}
		}
	}
	if found < 60 {
		t.Errorf("got %d commands, want 60 at least", found)
	}
}

// filledIn puts values in the place of what wid knows as placeholders.
func filledIn(args []string) (filled []string) {
	for _, arg := range args {
		if cli.CheckValue(arg) != nil {
			arg = "filled-in"
		}
		filled = append(filled, arg)
	}
	return filled
}

// parseWid has wid's own parser read words of a shell.
func parseWid(t *testing.T) func(words string) error {
	return func(words string) error {
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c",
			`printf '%s\n' `+words).Output() //nolint:gosec // commands of the doctor
		if err != nil {
			return err
		}
		cmd, rest, err := newRoot().Find(strings.Split(strings.TrimSpace(string(out)), "\n"))
		if err == nil {
			err = cmd.ParseFlags(filledIn(rest))
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		return err
	}
}

// checkCommands asserts that each command of kubectl and wid names the side,
// has flags that its program knows, and deletes nothing.
func checkCommands(t *testing.T, commands []string, side string) {
	t.Helper()
	kubectl := filepath.Join(kubetest.Assets(t), "kubectl")
	parsers := map[string]func(string) error{"wid": parseWid(t), "kubectl": func(words string) error {
		return exec.CommandContext(t.Context(), "/bin/sh", "-c",
			kubectl+" "+words+" --help").Run() //nolint:gosec // our own commands; --help keeps kubectl from running them
	}}
	checked := map[string]int{}
	for _, command := range commands {
		program, words, _ := strings.Cut(command, " ")
		if parsers[program] == nil {
			continue // a line of a manifest
		}
		checked[program]++
		if err := parsers[program](words); err != nil || !strings.Contains(command+" ", " "+side+" ") ||
			strings.Contains(command, " delete ") {
			t.Errorf("%s: got %v, want a command that names %s and deletes nothing", command, err, side)
		}
	}
	for program, parse := range parsers {
		if checked[program] == 0 || parse("get --no-such-flag") == nil {
			t.Errorf("%s: %d commands, or it parses an unknown flag", program, checked[program])
		}
	}
}

// The commands of each reason of the server. One that makes AWS or the server
// trust more follows --show-policy only.
func TestRemediesOfPodIdentity(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, reason := range []string{"AccessDenied", "Conflict", "RoleNotAllowed", "Unavailable"} {
		binding := &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"},
			Spec: v1alpha1.IAMBindingSpec{ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "reporting"}},
			Status: v1alpha1.IAMBindingStatus{
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason}}}}
		report := podidentitydoctor.Run(t.Context(),
			podidentitydoctor.Config{Namespace: "team-a", ServiceAccount: "reporting",
				File: cli.KubeFile{Path: "a b/config", Context: "managed-0"}, Examination: doctor.Examination{ShowPolicy: true},
				Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(binding).Build()})
		for i := range report.Findings {
			r := report.Findings[i].Remedy
			if commands = append(commands, r.Commands...); r.Or != nil {
				commands = append(commands, r.Or.Commands...)
			}
		}
	}
	checkCommands(t, commands, "--kubeconfig 'a b/config' --context managed-0")
}
