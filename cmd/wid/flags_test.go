package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
)

// --help-all has every flag once, under a heading. --help leaves out the rare ones.
func TestHelpIsGrouped(t *testing.T) {
	usage := must(t, "token", "--help-all")
	for _, s := range parsed(t).Settings() {
		if n := strings.Count(usage, "      --"+s.Name+" "); n != 1 {
			t.Errorf("--%s is there %d times", s.Name, n)
		}
		if !strings.Contains(usage, s.Title()+":\n") {
			t.Errorf("--%s has no group", s.Name)
		}
	}
	short := must(t, "token", "--help")
	for flag, want := range map[string]bool{"--service-account": true, "--region": true, "--help-all": true, "--exchange-issuer": false, "--no-environment": false} {
		if strings.Contains(short, " "+flag+" ") != want {
			t.Errorf("--help shows %s: %t", flag, !want)
		}
	}
	if !strings.Contains(short, " more flags: wid token --help-all\n") && !strings.HasSuffix(short, " more flags: wid token --help-all") {
		t.Errorf("--help does not name --help-all: %s", short)
	}
	if !strings.Contains(usage, "--reveal") || strings.Index(usage, "--reveal") > strings.Index(usage, "Whose identity:") {
		t.Error("the command's own flags do not come first")
	}
}

// --help of what needs no provider has the command's own flags, and each flag of it is taken.
func TestHelpOfTargetsIsTheirOwn(t *testing.T) {
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, +|)--([a-z-]+)`)
	for target, want := range map[string][]string{
		"registration": {"cluster-name", "context", "help", "help-all", "hub-context", "hub-kubeconfig", "kubeconfig",
			"output", "timeout", "verbose"},
	} {
		var got []string
		for _, match := range flag.FindAllStringSubmatch(must(t, "doctor", target, "--help"), -1) {
			got = append(got, match[1])
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: --help has %q", target, got)
		}
	}
	for _, s := range parsed(t).Settings() {
		if s.Group == credentials.GroupProgram || s.Group == credentials.GroupIdentity {
			continue
		}
		for _, args := range [][]string{{"doctor", "registration", "--" + s.Name}, {"doctor", "--" + s.Name + "=x", "registration"}} {
			if _, err := wid(t, "", args...); err == nil || !strings.Contains(err.Error(), "unknown flag: --"+s.Name) {
				t.Errorf("%q: %v", args, err)
			}
		}
	}
}

// parsed is an identity as a command has it with these arguments.
func parsed(t *testing.T, args ...string) *credentials.Identity {
	t.Helper()
	cmd := &cobra.Command{Use: "wid"}
	id := (&credentials.App{Stderr: &bytes.Buffer{}}).NewIdentity(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return id
}
