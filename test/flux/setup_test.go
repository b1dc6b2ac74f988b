package flux_test

import (
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	fluxauth "github.com/fluxcd/pkg/auth"
	fluxcache "github.com/fluxcd/pkg/cache"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/test/flux/after"
	"github.com/workloadid/workloadid/test/flux/before"
)

// flagsOf returns type and default by name.
func flagsOf(bind func(*pflag.FlagSet)) map[string]string {
	fs, all := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]string{}
	bind(fs)
	fs.VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.Type() + " " + f.DefValue })
	return all
}

// Names, types and defaults of flags stay. The port has one more.
func TestFlags(t *testing.T) {
	want := flagsOf((&before.Config{}).BindFlags)
	if len(want) != 3 {
		t.Errorf("got the flags %v, want three", want)
	}
	want["token-minimum-lifetime"] = "duration 10m0s"
	if got := flagsOf((&after.Config{}).BindFlags); !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	for ours, theirs := range map[string]string{
		auth.FlagDefaultServiceAccount:              fluxauth.ControllerFlagDefaultServiceAccount,
		auth.FlagDefaultKubeConfigServiceAccount:    fluxauth.ControllerFlagDefaultKubeConfigServiceAccount,
		auth.FlagDefaultDecryptionServiceAccount:    fluxauth.ControllerFlagDefaultDecryptionServiceAccount,
		auth.FeatureGateObjectLevelWorkloadIdentity: fluxauth.FeatureGateObjectLevelWorkloadIdentity,
		cache.OperationReconcile:                    fluxcache.OperationReconcile,
		fmt.Sprint("at most ", cache.MaxDuration):   fmt.Sprint("at most ", fluxcache.TokenMaxDuration),
	} {
		if ours != theirs {
			t.Errorf("%q was %q", ours, theirs)
		}
	}
}

// What the port refuses at the start. TestRemainingLifetime has the values that
// both accept.
func TestFlagValues(t *testing.T) {
	for name, row := range map[string]struct {
		flags         []string
		gateOff       bool
		before, after bool // whether the controller starts
	}{
		"defaults":                           {before: true, after: true},
		"a default without the feature gate": {flags: []string{"--default-service-account=app"}, gateOff: true},
		"a default":                          {flags: []string{"--default-service-account=app"}, before: true, after: true},
		"a default with a namespace":         {flags: []string{"--default-service-account=ns/app"}, before: true},
		"a negative duration":                {flags: []string{"--token-cache-max-duration=-1s"}, before: true},
		"a negative duration, cache off": {flags: []string{"--token-cache-max-duration=-1s", "--token-cache-max-size=0"},
			before: true},
		"more than an hour": {flags: []string{"--token-cache-max-duration=2h"}, before: true, after: true},
		"a negative size":   {flags: []string{"--token-cache-max-size=-1"}, before: true, after: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(resetFlux)
			theirs, ours := &before.Config{ObjectLevelWorkloadIdentity: !row.gateOff}, &after.Config{}
			ours.ObjectLevelWorkloadIdentity = !row.gateOff
			parse(t, theirs.BindFlags, row.flags)
			parse(t, ours.BindFlags, row.flags)
			if err := theirs.Apply(); (err == nil) != row.before {
				t.Errorf("fluxcd/pkg/auth: %v", err)
			}
			if err := ours.Apply(); (err == nil) != row.after {
				t.Errorf("workloadid: %v", err)
			}
		})
	}
}

// docs/migrating-from-fluxcd.md says how much the port changed.
func TestSizeOfThePort(t *testing.T) {
	// fails, since they differ
	out, _ := exec.CommandContext(t.Context(), "git", "diff", "--no-index", "--no-color", "--no-ext-diff", "-U0", "before",
		"after").Output()
	imported := regexp.MustCompile(`^.\t(\w+ )?"[^"]+"$`)
	count := map[string]int{}
	for line := range strings.Lines(string(out)) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"), line[0] != '+' && line[0] != '-':
		case imported.MatchString(line):
			count["imports"]++
		default:
			count[line[:1]]++
		}
	}
	page := document.Read(t, "docs/migrating-from-fluxcd.md").Text
	want := fmt.Sprintf("%d lines go and %d come, beside %d lines of imports", count["-"], count["+"], count["imports"])
	if !strings.Contains(strings.Join(strings.Fields(page), " "), want) {
		t.Errorf("docs/migrating-from-fluxcd.md does not say: %s", want)
	}
}
