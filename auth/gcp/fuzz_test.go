package gcp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Whatever the services answer, there is either a whole credential or an error,
// and never the token that was sent.
func FuzzAnswers(f *testing.F) {
	f.Add(200, []byte(`{"access_token":"ya29.x","token_type":"Bearer","expires_in":3599}`), 200,
		[]byte(`{"accessToken":"ya29.y","expireTime":"2099-01-01T00:00:00Z"}`))
	f.Add(200, []byte(`{"access_token":"ya29.x","expires_in":3599}`), 200,
		[]byte(`{"accessToken":"ya29.y","expireTime":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`))
	f.Add(400, []byte(`{"error":"invalid_grant","error_description":"no"}`), 403,
		[]byte(`{"error":{"status":"PERMISSION_DENIED","details":[{}]}}`))
	f.Add(200, []byte("<html>"), 302, []byte(nil))
	issuer := testenv.Issuer(f)
	sa := testenv.ServiceAccount("tenant-a", "app", gcp.WorkloadIdentityProviderAnnotation, poolProvider,
		gcp.ServiceAccountAnnotation, email("tenant-a"))
	canary, err := issuer.Sign(issuer.Claims(sa, []string{"//iam.googleapis.com/" + poolProvider}, 24*time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, iamStatus int, iamBody []byte) {
		if status < 200 || iamStatus < 200 || status == 429 || iamStatus == 429 || status > 499 || iamStatus > 499 {
			return // these are waited for
		}
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp := answer(status, string(body))
			if strings.HasPrefix(r.URL.Host, "iam") {
				resp = answer(iamStatus, string(iamBody))
			}
			resp.Request = r
			return resp, nil
		})}
		got, err := (&gcp.Provider{}).NewTokenForServiceAccount(t.Context(), canary, sa,
			&provider.Options{HTTPClient: client, Identity: email("tenant-a")})
		if (err == nil) == (got == nil) {
			t.Fatalf("got %v with error %v", got, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), canary) {
				t.Fatalf("the error holds the token: %v", err)
			}
			return
		}
		token, err := gcp.FromToken(got)
		if err != nil || token.AccessToken() == "" || token.GetDuration() <= 0 || token.GetDuration() > 14*time.Hour {
			t.Errorf("incomplete: %v, %v", token, err)
		}
	})
}
