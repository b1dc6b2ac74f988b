package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// logins is the environment of an engineer who may read everything in AWS.
func (w *world) logins(t *testing.T) []string {
	t.Helper()
	id, key := w.cloud.AWS().AddUser(account, "engineer")
	w.write(t, filepath.Join(w.home, ".aws", "credentials"), "[engineer]\naws_access_key_id = "+id+"\naws_secret_access_key = "+key+"\n")
	return []string{"AWS_PROFILE=engineer"}
}

// The program asks AWS with the login that it finds, on request only.
func TestDoctorTrustLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	logins := w.logins(t)
	args := append(annotationFlags(), "doctor", w.tokenFile(t, aws.DefaultAudience), "--region=eu-central-1", "--provider=aws",
		"--verbose")
	r := w.exec(t, "", logins, "wid", append(args[:len(args):len(args)], "--trust-live")...)
	if !strings.Contains(r.stdout, "✓ trust-rule") || strings.Contains(r.stdout, "✗ trust") || strings.Contains(r.stdout, "eyJ") {
		t.Errorf("%+v", r)
	}
	before := len(w.cloud.Log())
	r = w.exec(t, "", logins, "wid", args...)
	for _, call := range w.cloud.Log()[before:] {
		if call.Service == "iam" {
			t.Errorf("asked without being told to: %+v", call)
		}
	}
	if !strings.Contains(r.stdout, "- trust-rule") || strings.Contains(r.stdout, "read as") {
		t.Errorf("%+v", r)
	}
}

// Without a login, or with one in another account, the report says how to log in.
func TestDoctorWithoutLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elsewhere, secret := w.cloud.AWS().AddUser("210987654321", "engineer")
	for _, tc := range []struct {
		text string
		env  []string
	}{
		{"no usable login for AWS", nil},
		{"not in account " + account, []string{"AWS_ACCESS_KEY_ID=" + elsewhere, "AWS_SECRET_ACCESS_KEY=" + secret}},
		{"aws sso login", []string{"AWS_PROFILE=typo"}},
	} {
		args := append([]string{"doctor", "--provider=aws", "--trust-live", "--region=eu-central-1", "-o=json", w.tokenFile(t, aws.DefaultAudience)}, annotationFlags()...)
		r := w.exec(t, "", tc.env, "wid", args...)
		if f := parseReport(t, r.stdout).Of("trust-rule"); f.Result != doctor.Unknown || !strings.Contains(r.stdout, tc.text) || strings.Contains(r.stdout, "eyJ") {
			t.Errorf("%s: %+v", tc.text, r)
		}
	}
}

// The role's trust policy explains the refusal. The command that widens it is printed on request.
func TestDoctorTrustRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	logins := w.logins(t)
	w.cloud.AWS().SetRole(role("tenant-a"), authtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
	args := append([]string{"doctor", "--provider=aws", "--trust-live"}, w.inHand(t)...)
	r := w.exec(t, "", logins, "wid", args...)
	if r.code != doctor.ExitFail || !strings.Contains(r.stdout, "[trust-rule, TrustPolicyRefusesSubject]") || !strings.Contains(r.stdout, "policy  system:serviceaccount:tenant-b:app\n") ||
		!strings.Contains(r.stdout, "see: wid doctor … --show-policy\n") || strings.Contains(r.stdout, "aws iam update-assume-role-policy") || strings.Count(r.stdout, "\n") > 14 {
		t.Errorf("%+v", r)
	}
	if r = w.exec(t, "", logins, "wid", append(args, "--show-policy")...); !strings.Contains(r.stdout, "aws iam update-assume-role-policy") {
		t.Errorf("%+v", r)
	}
}

func TestDoctorTrustLiveMistakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, provider := range []string{"generic", "azure", "gcp"} {
		r := w.wid(t, "", "doctor", "--trust-live", "--provider="+provider)
		if r.code != doctor.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, "--trust-live") {
			t.Errorf("%s: %+v", provider, r)
		}
	}
}
