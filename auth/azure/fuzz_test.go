package azure_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
)

// Whatever a token service answers, there is either a whole token or an error,
// and never the token that was sent.
func FuzzTokenAnswer(f *testing.F) {
	f.Add(200, `{"token_type":"Bearer","expires_in":3599,"ext_expires_in":3599,"access_token":"t"}`)
	f.Add(200, `{"token_type":"Bearer","expires_in":"3599","refresh_in":-1,"access_token":"t"}`)
	f.Add(401, `{"error":"invalid_client","error_description":"AADSTS700213: no Trace ID: x","error_codes":[700213]}`)
	f.Add(400, `{"error":"x","error_description":"AADSTS99999999999999999999: no","error_codes":[1,2]}`)
	f.Add(200, "<html>")
	const canary = "eyJhbGciOiJub25lIn0.e30.canary-signature"
	sa := *identity("tenant-a", "app", tenantID, clientA)
	f.Fuzz(func(t *testing.T, status int, text string) {
		if status < 200 || status > 599 || status == 429 || status >= 500 {
			return // these are tried again, after a while
		}
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return respond(r, status, text), nil
		})}
		got, err := (&azure.Provider{}).NewTokenForServiceAccount(t.Context(), canary, &sa,
			&provider.Options{HTTPClient: client, Identity: tenantID + "/" + clientA})
		if (err == nil) == (got == nil) {
			t.Fatalf("got %v with error %v", got, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "canary-signature") || len(err.Error()) > 2000 {
				t.Errorf("the message: %v", err)
			}
			return
		}
		token, err := azure.FromToken(got)
		if err != nil {
			t.Fatal(err)
		}
		if a := token.AccessToken(); a.Token == "" || strings.ContainsAny(a.Token, " \r\n\t") || token.GetDuration() <= 0 ||
			!a.RefreshOn.IsZero() && !a.RefreshOn.Before(a.ExpiresOn) {
			t.Errorf("incomplete: %v", token)
		}
	})
}

// The token of a ServiceAccount goes to one of the known hosts or nowhere.
func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"https://login.microsoftonline.com/", "https://login.microsoftonline.us:443",
		"https://login.microsoftonline.com@evil.example", "https://evil.example/x"} {
		f.Add(s)
	}
	known :=
		" login.microsoftonline.com login.windows.net login.microsoft.com login.chinacloudapi.cn login.partner.microsoftonline.cn login.microsoftonline.us "
	sa := *identity("tenant-a", "app", tenantID, clientA)
	f.Fuzz(func(t *testing.T, authority string) {
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if !strings.Contains(known, " "+r.URL.Host+" ") || r.URL.Scheme != "https" ||
				r.URL.Path != "/"+tenantID+"/oauth2/v2.0/token" || r.URL.RawQuery != "" {
				t.Errorf("%q led to %s", authority, r.URL)
			}
			return respond(r, 400, "{}"), nil
		})}
		opts := &auth.Options{Options: provider.Options{HTTPClient: client, Identity: tenantID + "/" + clientA}}
		azure.WithAuthorityHost(authority)(opts)
		// what counts is where it went
		_, _ = (&azure.Provider{}).NewTokenForServiceAccount(t.Context(), "jwt", &sa, &opts.Options)
	})
}
