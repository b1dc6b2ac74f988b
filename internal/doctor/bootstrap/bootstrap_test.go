package bootstrap_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	examine "github.com/workloadid/workloadid/internal/doctor/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
)

func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(w *environment){
		"with an administrator": func(*environment) {},
		"without one":           func(w *environment) { w.withoutAdmin = true },
		"without pins":          func(w *environment) { w.config.Pins, w.config.WithoutPins = nil, true },
		"the ID alone":          func(w *environment) { w.config.Token = tokenID },
		"a second, older pin":   func(w *environment) { w.config.Pins = append(w.config.Pins, newAuthority(t).pin()) },
		"host and port":         func(w *environment) { w.config.Server = strings.TrimPrefix(w.config.Server, "https://") },
		"API server below a path": func(w *environment) {
			w.answer = func(_ http.ResponseWriter, r *http.Request) bool {
				r.URL.Path = strings.TrimPrefix(r.URL.Path, "/k8s/clusters/c1")
				return false
			}
			w.config.Server = w.server.URL + "/k8s/clusters/c1"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			change(w)
			report := w.run()
			reporttest.Healthy(t, report, secretHalf)
			if len(report.Findings) != len(examine.Checks()) {
				t.Errorf("%d findings", len(report.Findings))
			}
		})
	}
}

func TestUncertain(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *environment)
		want   reporttest.Want
	}{
		"the ID alone, without an administrator": {func(w *environment) { w.config.Token, w.withoutAdmin = tokenID, true },
			reporttest.Want{Check: "discovery", Says: "only its secret tells", Result: doctor.Unknown}},
		"no token": {func(w *environment) { w.config.Token = "" },
			reporttest.Want{Check: "discovery", Class: "ArgumentMalformed", Says: "token"}},
		"no pin, and no wish to do without": {func(w *environment) { w.config.Pins = nil },
			reporttest.Want{Check: "discovery", Class: "NoPin", Says: "There is no pin", Result: doctor.Warn}},
		"kubeconfig of another cluster": {func(w *environment) { w.secret, w.own = nil, nil },
			reporttest.Want{Check: "cluster", Class: "NotPublished", Result: doctor.Warn}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			tt.change(w)
			reporttest.Headline(t, w.run(), tt.want, secretHalf)
		})
	}
}

func TestVerboseShowsPins(t *testing.T) {
	w := newEnvironment(t)
	w.config.Pins = []string{newAuthority(t).pin()}
	if text := w.run().Text(doctor.TextOptions{Verbose: true}); !strings.Contains(text, w.ca.pin()) {
		t.Errorf("the pin %s is missing:\n%s", w.ca.pin(), text)
	}
}

func TestSkippedChecksSendNothing(t *testing.T) {
	w := newEnvironment(t)
	for _, c := range examine.Checks() {
		w.config.Skip = append(w.config.Skip, c.ID)
	}
	if report := w.run(); report.ExitCode() != doctor.ExitUncertain || w.asked.Load() != 0 {
		t.Errorf("%d requests:\n%s", w.asked.Load(), report)
	}
}

func TestServerThatHangs(t *testing.T) {
	w := newEnvironment(t)
	w.answer = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
	w.config.Timeout = 300 * time.Millisecond
	if report := w.run(); report.Headline != "discovery" {
		t.Errorf("%s", report)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report := examine.Run(ctx, w.config); report.ExitCode() != doctor.ExitUncertain || len(report.Findings) != len(examine.Checks()) {
		t.Errorf("%s", report)
	}
}

func TestHostileClusterInfo(t *testing.T) {
	w := newEnvironment(t)
	w.withoutAdmin = true
	w.data = map[string]string{"kubeconfig": "\x1b[2J", "jws-kubeconfig-\x1b" + strings.Repeat("z", 10000): "x"}
	text := w.run().Text(doctor.TextOptions{Verbose: true})
	if strings.ContainsAny(text, "\x1b\x00") {
		t.Errorf("%.3000s", text)
	}
}

// An administrator needs no address of a joining machine.
func TestClusterAlone(t *testing.T) {
	w := newEnvironment(t)
	w.config.Server, w.config.Token = "", tokenID
	reporttest.Healthy(t, w.run(), secretHalf)
	w = newEnvironment(t)
	w.config.Server, w.config.Token = "", tokenID
	w.unsigned()
	reporttest.Headline(t, w.run(), reporttest.Want{Check: "cluster", Class: "NotSigned"}, secretHalf)
}

// A new token has the groups of the old one, which decide what its user may do.
func TestNewTokenKeepsItsGroups(t *testing.T) {
	w := newEnvironment(t)
	w.unsigned()
	w.tokenOf(func(c *bootstrap.TokenConfig) {
		c.Expires, c.Groups = time.Now().Add(-time.Hour), []string{"system:bootstrappers:managedcluster"}
	})
	if got := w.run().Worst().Remedy.Commands; len(got) != 1 || got[0] != "wid bootstrap create --groups system:bootstrappers:managedcluster --context CLUSTER" {
		t.Errorf("got %q", got)
	}
}

func TestPinCommand(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Log("there is no openssl here")
		return
	}
	w := newEnvironment(t)
	w.config.Pins = []string{newAuthority(t).pin()}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, w.ca.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	command := w.run().Worst().Remedy.Commands[0]
	command = strings.ReplaceAll(strings.ReplaceAll(command, "/etc/kubernetes/pki/ca.crt", file), "openssl", openssl)
	out, err := exec.CommandContext(t.Context(), "bash", "-euc", command).Output() //nolint:gosec // a command of the doctor
	if err != nil || !strings.HasPrefix(string(out), strings.TrimPrefix(w.ca.pin(), "sha256:")) {
		t.Errorf("%s: %v: %s", command, err, out)
	}
}

func FuzzArguments(f *testing.F) {
	f.Add("10.0.0.1:6443", "", wholeToken, "sha256:00")
	f.Add("https://u:p@[::1]:1/x?y#z", "api:1", tokenID, "AB:CD")
	f.Add(wholeToken, wholeToken, secretHalf, wholeToken)
	f.Fuzz(func(t *testing.T, server, name, token, pin string) {
		config := examine.Config{Server: server, ServerName: name, Token: token, Pins: []string{pin}}
		for _, c := range examine.Checks()[1:] {
			config.Skip = append(config.Skip, c.ID)
		}
		report := examine.Run(t.Context(), config)
		result, text := report.Findings[0].Result, report.Text(doctor.TextOptions{Verbose: true})
		if result != doctor.Pass && result != doctor.Fail || strings.ContainsAny(text, "\x1b\x00") {
			t.Errorf("%q", text)
		}
		for _, argument := range []string{server, name, token, pin} {
			if _, err := bootstrap.ParseToken(argument); err == nil && strings.Contains(text, argument) {
				t.Errorf("%q holds a token", text)
			}
		}
	})
}
