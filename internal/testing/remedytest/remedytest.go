// Package remedytest asserts what every remedy of the doctor has to satisfy, for the tests of the tables of remedies.
package remedytest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// Check asserts that each command of kubectl and wid names one of the sides and has flags that its program knows, and that a command
// that deletes or denies something follows a line that says what is lost. parse has wid parse words of a shell.
func Check(t *testing.T, remedies []doctor.Remedy, sides []string, parse func(words string) error) {
	t.Helper()
	kubectl := filepath.Join(kubetest.Assets(t), "kubectl")
	parsers := map[string]func(string) error{"wid": parse, "kubectl": func(words string) error {
		return exec.CommandContext(t.Context(), "/bin/sh", "-c", kubectl+" "+words+" --help").Run() //nolint:gosec // our own commands; --help keeps kubectl from running them
	}}
	for program, parse := range parsers {
		if parse("get --no-such-flag") == nil {
			t.Errorf("%s parses an unknown flag", program)
		}
	}
	seen := map[string]bool{}
	for _, r := range remedies {
		commands := r.Commands
		if r.Or != nil {
			commands = append(commands[:len(commands):len(commands)], r.Or.Commands...)
		}
		for _, command := range commands {
			program, words, _ := strings.Cut(command, " ")
			if parsers[program] == nil || seen[r.Text+command] {
				continue
			}
			seen[r.Text+command] = true
			if err := parsers[program](words); err != nil {
				t.Errorf("%s: %v", command, err)
			}
			if n := named(command, sides); n != 1 && !strings.HasPrefix(command, "wid hub policies ") { // which asks no cluster
				t.Errorf("%s names %d sides", command, n)
			}
			if IsDestructive(command) && !strings.Contains(r.Text, "You lose ") {
				t.Errorf("%s follows %q", command, r.Text)
			}
		}
	}
	if len(seen) == 0 {
		t.Error("there are no commands")
	}
}

func named(command string, sides []string) (n int) {
	for _, side := range sides {
		if strings.Contains(command+" ", " "+side+" ") {
			n++
		}
	}
	return n
}

// Unexamined asserts that no remedy deletes or denies anything.
func Unexamined(t *testing.T, remedies []doctor.Remedy) {
	t.Helper()
	for _, r := range remedies {
		for _, command := range r.Commands {
			if IsDestructive(command) {
				t.Errorf("%s is printed for a cluster that was not examined", command)
			}
		}
	}
}

// IsDestructive reports a command that deletes or denies something.
func IsDestructive(command string) bool {
	return strings.Contains(command, " delete ") || strings.Contains(command, "hub deny")
}
