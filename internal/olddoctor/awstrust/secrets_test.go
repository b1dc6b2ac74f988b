package awstrust_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// What a credential_process prints is in no report, whatever is wrong with it.
func TestProgramIsNotQuoted(t *testing.T) {
	const secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	for name, printed := range map[string]string{
		"another type": `{"Version":1,"AccessKeyId":"AKIAEXAMPLE","SecretAccessKey":"` + secret + `","Expiration":5}`,
		"no JSON":      secret,
	} {
		w := newWorld(t)
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte("[default]\ncredential_process = printf '%s' '"+printed+"'\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_CONFIG_FILE", path)
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", path+"-none")
		t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		w.reader.Credentials = nil
		report := w.Run()
		if f := report.Of("trust-rule"); f.Result != doctor.Unknown || f.Remedy == "" && !strings.Contains(f.Message, "check 19") {
			t.Errorf("%s: %+v", name, f)
		}
		if text := report.String(); strings.Contains(text, secret[:10]) || !strings.Contains(text, "credential_process") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// The caller's own credentials are in no report of a service, or of what stands in its place, that repeats them.
func TestLoginIsNotRepeated(t *testing.T) {
	const secret, session = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "FwoGZXIvYXdzEBYaDExampleSessionTokenOfSomeLength0123456789"
	for _, code := range []string{"AccessDenied", "ExpiredToken", "Other", session} {
		for service, action := range map[string]string{"sts": "GetCallerIdentity", "iam": ""} {
			w := newWorld(t)
			id, secretOfUser := w.Cloud.AWS().AddUser(account, "platform")
			w.reader.Credentials = credentials.NewStaticCredentialsProvider(id, secretOfUser, "")
			if service == "sts" {
				w.reader.Credentials = credentials.NewStaticCredentialsProvider(id, secret, session)
				secretOfUser = secret
			}
			w.Cloud.AddFault(authtest.Fault{Service: service, Action: action, Status: 403, Code: code, Message: "you sent " + session + " and " + secretOfUser})
			report := w.Run()
			text := report.String()
			if service == "iam" {
				text = strings.ReplaceAll(text, session, "") // not of this login
			}
			if f := report.Of("trust-rule"); f.Result != doctor.Unknown || strings.Contains(text, secretOfUser[:10]) || strings.Contains(text, session[:16]) && service == "sts" {
				t.Errorf("%s, %s: %+v\n%s", code, service, f, text)
			}
		}
	}
}

// An issuer that a shell would obey is quoted in what there is to do.
func TestHostileIssuerInRemedies(t *testing.T) {
	for _, issuer := range []string{"https://x.example/; touch pwned #", "https://x.example/$(touch pwned)", "https://x.example/`touch pwned`", "https://x.example/' ; touch pwned; '"} {
		w := newWorld(t)
		sa := &corev1.ServiceAccount{}
		sa.Namespace, sa.Name = "tenant-a", "app"
		claims := w.Issuer.Claims(sa, []string{aws.DefaultAudience}, 1e12)
		claims["iss"] = issuer
		signed, err := w.Issuer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		w.Config.Token = signed
		w.Cloud.AWS().Deny(platform, "iam:GetOpenIDConnectProvider", "iam:GetRole")
		for _, f := range w.Run().Findings {
			for line := range strings.SplitSeq(f.Remedy, "\n") {
				if !strings.Contains(line, "pwned") {
					continue
				}
				dir := t.TempDir()
				cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", line)
				cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin:."}
				_ = cmd.Run()
				if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
					t.Errorf("%s: %s", f.ID, line)
				}
			}
		}
	}
}
