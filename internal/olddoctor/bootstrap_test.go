package doctor_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

func results(report *doctor.Report) map[string]doctor.Result {
	all := map[string]doctor.Result{}
	for _, f := range report.Findings {
		all[f.ID] = f.Result
	}
	return all
}

// No false alarms, with and without an administrator, and with a signature that lags behind.
func TestBootstrapHealthy(t *testing.T) {
	for name, change := range map[string]func(w *bootWorld){
		"with an administrator": func(*bootWorld) {},
		"without one":           func(w *bootWorld) { w.withoutAdmin = true },
		"without pins":          func(w *bootWorld) { w.config.Pins, w.config.WithoutPins = nil, true },
		"the ID alone":          func(w *bootWorld) { w.config.Token = bootID },
		"a second, older pin":   func(w *bootWorld) { w.config.Pins = append(w.config.Pins, newAuthority(t).pin()) },
		"host and port":         func(w *bootWorld) { w.config.Server = strings.TrimPrefix(w.config.Server, "https://") },
		"the signature lags": func(w *bootWorld) {
			good, n := w.data, 0
			w.answer = func(http.ResponseWriter, *http.Request) bool {
				if n++; n == 1 {
					w.data = map[string]string{"kubeconfig": good["kubeconfig"], "jws-kubeconfig-" + bootID: strings.Repeat("x", 90)}
				} else {
					w.data = good
				}
				return false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newBootWorld(t)
			change(w)
			report := w.run()
			if report.ExitCode() != doctor.ExitPass || report.Target == "" || report.Provider != "" {
				t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
			}
			if got := results(report); name == "without one" && (got["bootstrap-login"] != doctor.Pass || got["bootstrap-token"] != doctor.Skip) {
				t.Errorf("%v", got)
			}
			withoutSecret(t, report)
		})
	}
}

// What could not be looked at is not called good.
func TestBootstrapUncertain(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *bootWorld)
		check  string
		want   doctor.Result
	}{
		"the ID alone, without an administrator": {func(w *bootWorld) { w.config.Token, w.withoutAdmin = bootID, true }, "bootstrap-signature", doctor.Unknown},
		"no token":                               {func(w *bootWorld) { w.config.Token = "" }, "bootstrap-signature", doctor.Unknown},
		"no pin, and no wish to do without":      {func(w *bootWorld) { w.config.Pins = nil }, "bootstrap-pins", doctor.Warn},
	} {
		w := newBootWorld(t)
		tt.change(w)
		report := w.run()
		if f := report.Of(tt.check); f.Result != tt.want || report.ExitCode() != doctor.ExitUncertain {
			t.Errorf("%s: exit code %d:\n%s", name, report.ExitCode(), report)
		}
	}
}

// The pins of all authorities are shown, so that the right one can be compared with what the administrator says.
func TestBootstrapShowsPins(t *testing.T) {
	w := newBootWorld(t)
	w.config.Pins = []string{newAuthority(t).pin()}
	report := w.run()
	if text := report.String(); !strings.Contains(text, "authority 1 (kubernetes): "+w.ca.pin()) {
		t.Errorf("the pin %s is not in\n%s", w.ca.pin(), text)
	}
	second := newAuthority(t)
	w.publish(&bootstrap.ClusterInfo{Server: w.server.URL, CAData: append(append([]byte(nil), second.pem...), w.ca.pem...)})
	w.config.Pins, w.config.Client = []string{w.ca.pin()}, nil
	if f := w.run().Of("bootstrap-pins"); f.Result != doctor.Pass || !strings.HasSuffix(f.Message, w.ca.pin()+"; not pinned: "+second.pin()) {
		t.Errorf("%+v", f)
	}
}

// A check that is not wanted makes no request, and those that need it say so.
func TestBootstrapSkip(t *testing.T) {
	w := newBootWorld(t)
	for _, c := range doctor.BootstrapChecks() {
		w.config.Skip = append(w.config.Skip, c.ID)
	}
	if report := w.run(); report.ExitCode() != doctor.ExitPass || w.asked.Load() != 0 {
		t.Errorf("%d requests:\n%s", w.asked.Load(), report)
	}
	w.config.Skip = []string{"bootstrap-server"}
	if got := results(w.run()); got["bootstrap-signature"] != doctor.Skip || got["bootstrap-pins"] != doctor.Skip {
		t.Errorf("%v", got)
	}
}

// A server that hangs costs no more than the time limit.
func TestBootstrapTimeLimit(t *testing.T) {
	w := newBootWorld(t)
	w.answer = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
	w.config.Timeout = time.Second
	start := time.Now()
	report := w.run()
	if took := time.Since(start); took > 30*time.Second || report.ExitCode() == doctor.ExitPass {
		t.Errorf("took %s:\n%s", took, report)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report := doctor.RunBootstrap(ctx, w.config); report.ExitCode() != doctor.ExitUncertain || len(report.Findings) != len(doctor.BootstrapChecks()) {
		t.Errorf("%s", report)
	}
}

// What a hostile server sends neither breaks the report's lines nor floods it.
func TestBootstrapHostile(t *testing.T) {
	w := newBootWorld(t)
	w.withoutAdmin = true
	w.data = map[string]string{"kubeconfig": "\x1b[2J", "jws-kubeconfig-\x1b" + strings.Repeat("z", 10000): "x"}
	text := w.run().String()
	if strings.ContainsAny(text, "\x1b\x00") || strings.Contains(text, strings.Repeat("z", 400)) {
		t.Errorf("%.3000s", text)
	}
	w.answer = func(rw http.ResponseWriter, _ *http.Request) bool {
		for range 6 {
			_, _ = rw.Write(make([]byte, 1<<20))
		}
		return true
	}
	if f := w.run().Of("bootstrap-server"); f.Result != doctor.Fail || !strings.Contains(f.Message, "larger than") {
		t.Errorf("%+v", f)
	}
}

// Who has verified the server by its pins need not fear somebody in between.
func TestBootstrapWrongSignatureOfRightCluster(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *bootWorld)
		fear   bool
	}{
		"pinned":     {func(*bootWorld) {}, false},
		"not pinned": {func(w *bootWorld) { w.config.Pins, w.config.WithoutPins = nil, true }, true},
	} {
		w := newBootWorld(t)
		w.withoutAdmin, w.config.Token = true, bootID+".aaaaaaaaaaaaaaaa"
		tt.change(w)
		f := w.run().Of("bootstrap-signature")
		if f.Class != "B15" || strings.Contains(strings.Join(f.Causes, " ")+f.Remedy, "somebody is in between") != tt.fear {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// The command that findings name computes what a pin is.
func TestBootstrapPinCommand(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Log("there is no openssl here")
		return
	}
	w := newBootWorld(t)
	w.config.Pins = []string{"sha256:"}
	_, command, _ := strings.Cut(w.run().Worst().Remedy, ": ")
	command, _, _ = strings.Cut(command, "\n")
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, w.ca.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	command = strings.ReplaceAll(strings.ReplaceAll(command, "/etc/kubernetes/pki/ca.crt", file), "openssl", openssl)
	out, err := exec.CommandContext(t.Context(), "bash", "-euc", command).Output() //nolint:gosec // what the doctor says
	if err != nil || !strings.HasPrefix(string(out), strings.TrimPrefix(w.ca.pin(), "sha256:")) {
		t.Errorf("%s: %v: %s", command, err, out)
	}
}

// Whatever is written on the command line, it is judged without the network, and no token is repeated.
func FuzzBootstrapArguments(f *testing.F) {
	f.Add("10.0.0.1:6443", "", bootToken, "sha256:00")
	f.Add("https://u:p@[::1]:1/x?y#z", "api:1", bootID, "AB:CD")
	f.Add(bootToken, bootToken, bootSecret, bootToken)
	f.Fuzz(func(t *testing.T, server, name, token, pin string) {
		config := doctor.BootstrapConfig{Server: server, ServerName: name, Token: token, Pins: []string{pin}}
		for _, c := range doctor.BootstrapChecks()[1:] {
			config.Skip = append(config.Skip, c.ID)
		}
		report := doctor.RunBootstrap(t.Context(), config)
		result, text := report.Findings[0].Result, report.String()+report.Target
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

// An administrator's kubeconfig of another cluster says nothing of a token that works.
func TestBootstrapKubeconfigOfAnotherCluster(t *testing.T) {
	for name, spoil := range map[string]func(w *bootWorld){
		"no cluster-info there":   func(w *bootWorld) { w.own = nil },
		"another cluster-info":    func(w *bootWorld) { w.own = map[string]string{"kubeconfig": "apiVersion: v1"} },
		"an ID alone":             func(w *bootWorld) { w.own, w.config.Token = map[string]string{"kubeconfig": "x"}, bootID },
		"a token that may not":    func(w *bootWorld) { w.own, w.login = map[string]string{"kubeconfig": "x"}, http.StatusUnauthorized },
		"the same, token is gone": func(*bootWorld) {},
	} {
		w := newBootWorld(t)
		w.secret = nil
		spoil(w)
		w.config.RESTConfig = &rest.Config{Host: "https://admin.example:6443"}
		report := w.run()
		f := report.Of("bootstrap-token")
		switch name {
		case "the same, token is gone":
			if f.Result != doctor.Fail || f.Class != "B23" || !strings.Contains(report.String(), "https://admin.example:6443") {
				t.Errorf("%s:\n%s", name, report)
			}
			continue
		case "an ID alone", "a token that may not":
			if f.Result != doctor.Unknown || !strings.Contains(report.String(), "https://admin.example:6443") {
				t.Errorf("%s:\n%s", name, report)
			}
		default:
			if f.Result != doctor.Skip || report.Of("bootstrap-login").Result != doctor.Pass {
				t.Errorf("%s:\n%s", name, report)
			}
		}
		if !strings.Contains(f.Message, "another cluster") || report.Of("bootstrap-signature").Result == doctor.Skip {
			t.Errorf("%s:\n%s", name, report)
		}
	}
}

// Remedies that change a cluster say first that it may be the wrong one.
func TestBootstrapAddressOfAnotherCluster(t *testing.T) {
	forbid := func(rw http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, infoPath) {
			status(rw, http.StatusForbidden, `forbidden: User "system:anonymous" cannot get path "`+r.URL.Path+`"`)
		}
		return strings.HasSuffix(r.URL.Path, infoPath)
	}
	w := newBootWorld(t)
	w.answer = forbid
	w.config.RESTConfig = &rest.Config{Host: "https://admin.example:6443"}
	if f := w.run().Of("bootstrap-server"); f.Class != "B8" || !strings.HasPrefix(f.Remedy, "see first that both are the same cluster") ||
		!strings.Contains(f.Message, "another address") {
		t.Errorf("%+v", f)
	}
	w = newBootWorld(t)
	w.answer = forbid
	w.config.RESTConfig = &rest.Config{Host: w.server.URL + "/"}
	if f := w.run().Of("bootstrap-server"); f.Class != "B8" || strings.Contains(f.Remedy, "same cluster") {
		t.Errorf("%+v", f)
	}
	w = newBootWorld(t)
	w.answer = forbid
	w.config.Server = w.server.URL + "/foo"
	if f := w.run().Of("bootstrap-server"); f.Class != "B1" || strings.Contains(f.Remedy, "kubectl") || !strings.Contains(f.Remedy, "without a path") {
		t.Errorf("%+v", f)
	}
}

// A proxy that serves an API server below a path is as good as the API server.
func TestBootstrapServerWithAPathThatWorks(t *testing.T) {
	w := newBootWorld(t)
	w.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/k8s/clusters/c1")
		return false
	}
	w.config.Server = w.server.URL + "/k8s/clusters/c1"
	if report := w.run(); report.ExitCode() != doctor.ExitPass {
		t.Error(report)
	}
}

// What is wrong with the Secret comes before the refusal that it causes.
func TestBootstrapGroupsBeforeTheLogin(t *testing.T) {
	w := newBootWorld(t)
	w.login = http.StatusUnauthorized
	w.secret.Data["auth-extra-groups"] = []byte("system:bootstrappers:a,system:masters")
	report := w.run()
	if f := report.Worst(); f.ID != "bootstrap-token" || f.Class != "B32" || f.Fields[0].Observed != "system:masters" {
		t.Errorf("begins with %+v\n%s", f, report)
	}
	if f := report.Of("bootstrap-login"); f.Result != doctor.Fail || len(f.Causes) != 0 {
		t.Errorf("%+v", f)
	}
}
