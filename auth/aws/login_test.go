package aws_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

// send does what Vault does with a login: it sends the signed request to STS, with the headers of the login.
func (w *world) send(t *testing.T, method, url, body string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := w.cloud.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func TestSignedCallerIdentity(t *testing.T) {
	w := newWorld(t)
	s, err := (&aws.Provider{}).NewSignedCallerIdentity(t.Context(), "vault.example", w.options("tenant-a", "app")...)
	if err != nil {
		t.Fatal(err)
	}
	login := s.VaultLogin("tenant-a")
	decode := func(name string) string {
		b, err := base64.StdEncoding.DecodeString(login[name])
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var header http.Header
	if err := json.Unmarshal([]byte(decode("iam_request_headers")), &header); err != nil {
		t.Fatal(err)
	}
	if login["role"] != "tenant-a" || decode("iam_request_url") != "https://sts.eu-central-1.amazonaws.com/" || !strings.Contains(header.Get("Authorization"), "x-vault-aws-iam-server-id") {
		t.Errorf("the login is of role %q for %q", login["role"], decode("iam_request_url"))
	}
	status, answer := w.send(t, login["iam_http_request_method"], decode("iam_request_url"), decode("iam_request_body"), header.Clone())
	if status != 200 || !strings.Contains(answer, "assumed-role/tenant-a/tenant-a.app") {
		t.Errorf("STS answers %d: %s", status, answer)
	}
	header.Set("X-Vault-AWS-IAM-Server-ID", "evil.example")
	if status, answer := w.send(t, s.Method(), s.URL(), s.Body(), header); status != 403 || !strings.Contains(answer, "SignatureDoesNotMatch") {
		t.Errorf("for another server %d: %s", status, answer)
	}
	if d := s.GetDuration(); d > 15*time.Minute || d < 13*time.Minute || time.Until(s.ExpiresAt()) != d && time.Until(s.ExpiresAt()) > d {
		t.Errorf("it lives for %s", d)
	}
	token := s.Header().Get("X-Amz-Security-Token")
	s.Header().Set("X-Amz-Security-Token", "overwritten")
	encoded, _ := json.Marshal(s)
	for _, printed := range []string{fmt.Sprintf("%v %+v %#v %s %x %q", s, s, s, s, s, *s), string(encoded)} {
		if token == "" || strings.Contains(printed, token) || s.Header().Get("X-Amz-Security-Token") != token {
			t.Error("it shows its secrets, or lets them be changed")
		}
	}
}

func TestSignedCallerIdentityRefused(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"a b", "a\r\nEvil: x", strings.Repeat("a", 256), "ä"} {
		_, err := (&aws.Provider{}).NewSignedCallerIdentity(t.Context(), id, w.options("tenant-a", "app")...)
		testworld.CheckError(t, err, auth.ErrMisconfigured, "server ID")
	}
	_, err := (&aws.Provider{}).NewSignedCallerIdentity(t.Context(), "", w.options("tenant-a", "app", auth.WithSTSRegion("us-isox-east-1"))...)
	if err == nil {
		t.Error("a region of no partition is accepted")
	}
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	_, err = (&aws.Provider{}).NewSignedCallerIdentity(t.Context(), "", w.options("tenant-a", "app")...)
	testworld.CheckError(t, err, auth.ErrDenied, "AccessDenied")
}
