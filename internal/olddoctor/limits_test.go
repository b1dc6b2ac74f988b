package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// hanging is an issuer that never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Whatever hangs, the whole ends in time, and what was not looked at is not called good.
func TestTimeLimit(t *testing.T) {
	w := newWorld(t, "aws")
	w.cloud.AddFault(authtest.Fault{Hang: true})
	w.config.IssuerClient = &http.Client{Transport: hanging{}}
	w.config.Timeout = time.Second
	start := time.Now()
	report := w.run()
	if took := time.Since(start); took > 30*time.Second { // by default it would be a minute
		t.Errorf("took %s", took)
	}
	for _, id := range []string{"discovery", "keys", "exchange", "token-review"} {
		if f := report.Of(id); f.Result == doctor.Pass {
			t.Errorf("%+v", f)
		}
	}
	if report.ExitCode() == doctor.ExitPass {
		t.Error("all is said to be well")
	}
}

// Cancelling ends the examination at once.
func TestCancelled(t *testing.T) {
	w := newWorld(t, "azure")
	w.run() // fills the config in
	w.config.Timeout = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	report := doctor.Run(ctx, w.config)
	if took := time.Since(start); took > 30*time.Second || len(report.Findings) != len(doctor.Checks()) || report.ExitCode() != doctor.ExitUncertain {
		t.Errorf("took %s:\n%s", took, report)
	}
}

// Hostile values neither break the report's lines nor flood it.
func TestHostileClaims(t *testing.T) {
	w := newWorld(t, "aws")
	w.write(w.sign(func(c map[string]any) {
		c["sub"] = "system:serviceaccount:\x1b[2J\n" + strings.Repeat("x", 10000)
		c["iss"] = "https://\x00evil.example/" + strings.Repeat("y", 10000)
	}))
	text := w.run().String()
	if strings.ContainsAny(text, "\x1b\x00") || strings.Contains(text, strings.Repeat("x", 400)) || strings.Contains(text, strings.Repeat("y", 400)) {
		t.Errorf("%.3000s", text)
	}
}

// The file of another user is told from one that is missing.
func TestUnreadableTokenFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may read everything; only the class is checked")
		class := doctor.ClassOf(&auth.Error{Cause: auth.CauseTokenFileForbidden})
		if class.ID != "K9" {
			t.Errorf("%+v", class)
		}
		return
	}
	w := newWorld(t, "aws")
	w.write(w.sign(nil))
	if err := os.Chmod(w.config.TokenFile, 0); err != nil {
		t.Fatal(err)
	}
	if f := w.run().Worst(); f.ID != "token-file" || f.Class != "K9" {
		t.Errorf("%+v", f)
	}
}

func TestDanglingLink(t *testing.T) {
	w := newWorld(t, "aws")
	w.config.TokenFile = filepath.Join(w.dir, "token")
	if err := os.Symlink(filepath.Join(w.dir, "..data", "token"), w.config.TokenFile); err != nil {
		t.Fatal(err)
	}
	if f := w.run().Worst(); f.ID != "token-file" || !strings.Contains(f.Message, "..data") {
		t.Errorf("%+v", f)
	}
}

// A controller that runs no check gets the same classes from the error alone, in a text that stays the same.
func TestConditionOf(t *testing.T) {
	w := newWorld(t, "aws")
	w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL())
	token := w.sign(nil)
	get := func() error {
		_, err := auth.GetAccessToken(t.Context(), w.config.Provider, append(w.config.Options,
			auth.WithSubjectToken(auth.NewStaticTokenSource(token), *w.account))...)
		return fmt.Errorf("reconcile: %w", err)
	}
	err := get()
	c := doctor.ConditionOf(err, "Ready", 7)
	if c.Status != "False" || c.Reason != "DeniedA2" || c.ObservedGeneration != 7 || !strings.Contains(c.Message, "Most likely: it was never created") {
		t.Errorf("%+v", c)
	}
	if again := doctor.ConditionOf(get(), "Ready", 7); again != c {
		t.Errorf("flaps: %+v, %+v", c, again)
	}
	claims, parseErr := doctor.ParseClaims(token)
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	text := doctor.Explain(err, claims)
	for _, part := range []string{"AWS STS refused:", "(A2)", "iss=https://issuer.example", "aud=sts.amazonaws.com", "Do: correct the identity, the audience or the cluster", "HTTP 400, InvalidIdentityToken, request "} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	if strings.Contains(text, token) {
		t.Error("the token is in the text")
	}
	if c := doctor.ConditionOf(nil, "Ready", 1); c.Status != "True" {
		t.Errorf("%+v", c)
	}
	if c := doctor.ConditionOf(errors.New("else"), "Ready", 1); c.Status != "Unknown" || c.Reason == "" {
		t.Errorf("%+v", c)
	}
}

func FuzzParseTrust(f *testing.F) {
	f.Add([]byte(awsTrust("https://issuer.example", goodCondition("https://issuer.example"))))
	f.Add([]byte(azureTrust("https://issuer.example", subject, "a")))
	f.Add([]byte(gcpTrust("https://issuer.example", `,"attributeCondition":"assertion.sub in ['a']"`, principal)))
	f.Fuzz(func(t *testing.T, content []byte) {
		reader, err := doctor.ParseTrust(content)
		if err != nil {
			return
		}
		if trust, err := reader.ReadTrust(t.Context(), doctor.TrustQuery{}); err != nil || trust == nil {
			t.Errorf("%v, %v", trust, err)
		}
	})
}

func FuzzParseClaims(f *testing.F) {
	f.Add("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJhIiwiYXVkIjpbImIiXX0.c2ln")
	f.Fuzz(func(t *testing.T, token string) {
		claims, err := doctor.ParseClaims(token)
		if (claims == nil) == (err == nil) || claims != nil && len(claims.Fingerprint) != 8 {
			t.Errorf("%+v, %v", claims, err)
		}
	})
}
