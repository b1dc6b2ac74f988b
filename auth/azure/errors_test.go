package azure_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func body(text string) cloudtest.Fault {
	return cloudtest.Fault{Rewrite: func([]byte) []byte { return []byte(text) }}
}

func answer(life, token string) cloudtest.Fault {
	return body(fmt.Sprintf(`{"token_type":"Bearer","expires_in":%s,"access_token":%q}`, life, token))
}

// Every way in which Entra can fail has its reason and its remedy.
func TestErrorsOfEntra(t *testing.T) {
	w := newEnvironment(t)
	refusal := func(status int, kind, message string) cloudtest.Fault {
		return cloudtest.Fault{Status: status, Code: kind, Message: message}
	}
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   []string
	}{
		"no federation": {refusal(401, "invalid_client",
			"AADSTS70025: The client 'x' has no configured federated identity credentials."), auth.ErrDenied,
			[]string{"add a federated credential"}},
		"case": {refusal(401, "invalid_client", "AADSTS7002138: No matching"), auth.ErrDenied,
			[]string{"upper and lower case"}},
		"no application": {refusal(400, "unauthorized_client",
			"AADSTS700016: Application with identifier 'x' was not found in the directory 'Contoso'."), auth.ErrMisconfigured,
			[]string{"client ID", "object or resource ID"}},
		"no tenant": {refusal(400, "invalid_request", "AADSTS90002: Tenant 'x' not found."), auth.ErrMisconfigured,
			[]string{"authority host"}},
		"bad tenant": {refusal(400, "invalid_request", "AADSTS900023: Specified tenant identifier"),
			auth.ErrMisconfigured, []string{"correct the tenant"}},
		"no resource": {refusal(400, "invalid_resource",
			"AADSTS500011: The resource principal named x was not found"), auth.ErrMisconfigured, []string{"/.default"}},
		"time": {refusal(401, "invalid_client",
			"AADSTS700024: Client assertion is not within its valid time range. Current time: 2024-06-04T11:40:28.3451933Z, assertion"), auth.ErrUnavailable, []string{"clock", "valid time range. (HTTP"}},
		"key": {refusal(401, "invalid_client",
			"AADSTS7000272: The certificate with identifier  used to sign"), auth.ErrUnavailable,
			[]string{"publish the current keys"}},
		"issuer not reached": {refusal(400, "invalid_request", "AADSTS90061: Request to External OIDC endpoint failed."),
			auth.ErrUnavailable, []string{"discovery document"}},
		"issuer not reached2": {refusal(400, "invalid_request", "AADSTS501661: Request to External OIDC endpoint failed."),
			auth.ErrUnavailable, []string{"discovery document"}},
		"no role": {refusal(400, "invalid_grant", "AADSTS501051: Application 'x' is not assigned to a role"),
			auth.ErrDenied, []string{"role"}},
		"unknown number": {refusal(401, "invalid_client",
			"AADSTS53003: Access has been blocked by Conditional Access policies."), auth.ErrDenied, []string{"AADSTS53003"}},
		"no number": {refusal(400, "invalid_client", "nothing that we know"), auth.ErrDenied,
			[]string{"invalid_client", "nothing that we know"}},
		"scope": {refusal(400, "invalid_scope", "no"), auth.ErrMisconfigured, []string{"invalid_scope"}},
		"throttled": {cloudtest.Fault{Status: 429, Code: "temporarily_unavailable",
			Message: "AADSTS90055: slow down", RetryAfter: "30"}, auth.ErrThrottled, []string{"HTTP 429"}},
		"loop": {refusal(400, "invalid_grant",
			"AADSTS50196: The server terminated an operation because it encountered a client request loop."),
			auth.ErrThrottled, nil},
		"down": {refusal(503, "temporarily_unavailable", "AADSTS90033: A transient error has occurred."),
			auth.ErrUnavailable, []string{"HTTP 503"}},
		"cut": {cloudtest.Fault{Cut: true}, auth.ErrUnavailable, []string{"no answer"}},
		"redirect": {cloudtest.Fault{Redirect: "https://evil.example/"}, auth.ErrUnavailable,
			[]string{"redirect", "login.microsoftonline.com"}},
		"HTML": {cloudtest.Fault{Body: "<html>sign in</html>"}, auth.ErrUnavailable, []string{"JSON object"}},
		"HTML 403": {cloudtest.Fault{Status: 403, Code: "", Message: ""}, auth.ErrUnavailable,
			[]string{"not one of Microsoft Entra ID"}},
		"empty": {body(""), auth.ErrUnavailable, []string{"JSON object"}},
		"null":  {body("null"), auth.ErrUnavailable, []string{"JSON object"}},
		"list":  {body("[]"), auth.ErrUnavailable, []string{"JSON object"}},
		"no token": {body(`{"token_type":"Bearer","expires_in":3599}`), auth.ErrUnavailable,
			[]string{"access_token is missing"}},
		"no type": {body(`{"expires_in":3599,"access_token":"t"}`), auth.ErrUnavailable, []string{"token_type"}},
		"proof of possession": {body(`{"token_type":"pop","expires_in":3599,"access_token":"t"}`), auth.ErrUnavailable,
			[]string{`"pop"`}},
		"no expiry": {body(`{"token_type":"Bearer","access_token":"t"}`), auth.ErrUnavailable,
			[]string{"expires_in"}},
		"expired":          {answer("-1", "t"), auth.ErrUnavailable, []string{"expires_in"}},
		"no number of s":   {answer(`"soon"`, "t"), auth.ErrUnavailable, []string{"expires_in"}},
		"for ever":         {answer("1e300", "t"), auth.ErrUnavailable, []string{"out of range"}},
		"three days":       {answer("259200", "t"), auth.ErrUnavailable, []string{"out of range"}},
		"header injection": {answer("3599", "t\r\nX: y"), auth.ErrUnavailable, []string{"malformed"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer w.Cloud.AddFault(tc.fault)()
			token, err := w.get(t, "tenant-a", "app")
			if token != nil {
				t.Errorf("got %v", token)
			}
			testenv.CheckError(t, err, tc.reason, tc.want...)
			for _, changing := range []string{"Trace ID", "Timestamp", "2024-06", "\r", "\n"} {
				if strings.Contains(err.Error(), changing) {
					t.Errorf("the message holds %q: %v", changing, err)
				}
			}
			if name == "throttled" && auth.RetryAfter(err) != 30*time.Second {
				t.Errorf("retry after %s", auth.RetryAfter(err))
			}
		})
	}
}

// entraRefusing refuses requests with a description in turn, then accepts them.
// The last one stays if it is not "".
func entraRefusing(asked *int, descriptions ...string) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		text := descriptions[min(*asked, len(descriptions)-1)]
		*asked++
		if text == "" {
			return respond(r, http.StatusOK, goodToken), nil
		}
		body := fmt.Sprintf(`{"error":"invalid_client","error_description":%q}`, text)
		return respond(r, http.StatusUnauthorized, body), nil
	})}
}

// A replica of Entra that does not know a credential yet costs two seconds. A
// mistake is denied then, with its remedy.
func TestStaleRefusals(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	const noRecord = "No matching federated identity record found for presented assertion"
	for name, tc := range map[string]struct {
		answers []string
		asked   int
		want    []string // nil: a token
	}{
		"once, in general":   {[]string{"AADSTS70021: " + noRecord + ".", ""}, 2, nil},
		"once, the issuer":   {[]string{"AADSTS700211: " + noRecord + " issuer 'https://x/'.", ""}, 2, nil},
		"once, the audience": {[]string{"AADSTS700212: " + noRecord + " audience 'x'.", ""}, 2, nil},
		"once, the subject":  {[]string{"AADSTS700213: " + noRecord + " subject 'x'.", ""}, 2, nil},
		"twice":              {[]string{"AADSTS700213: " + noRecord, "AADSTS70021: " + noRecord, ""}, 2, []string{"70021"}},
		"no federation": {[]string{"AADSTS70021: " + noRecord + ". Assertion Issuer: 'https://x/'."}, 2,
			[]string{"AADSTS70021", "add a federated credential", `"system:serviceaccount:tenant-a:app"`}},
		"issuer":   {[]string{"AADSTS700211: " + noRecord}, 2, []string{"issuer of the federated credential", "slash"}},
		"audience": {[]string{"AADSTS700212: " + noRecord}, 2, []string{`"api://AzureADTokenExchange"`}},
		"subject":  {[]string{"AADSTS700213: " + noRecord}, 2, []string{`"system:serviceaccount:tenant-a:app"`}},
		"separators of 2022": {[]string{"AADSTS700213: No\r\nTrace ID: f6\r\nTimestamp: 2024"}, 2,
			[]string{": No (HTTP 401, AADSTS700213)"}},
		"case":            {[]string{"AADSTS7002138: " + noRecord, ""}, 1, []string{"upper and lower case"}},
		"no credential":   {[]string{"AADSTS70025: The client has no federated credentials.", ""}, 1, []string{"add"}},
		"another mistake": {[]string{"AADSTS700027: The certificate is not registered.", ""}, 1, []string{"AADSTS700027"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, start := 0, time.Now()
				_, err := w.get(t, "tenant-a", "app", auth.WithHTTPClient(entraRefusing(&asked, tc.answers...)))
				if want := time.Duration(tc.asked-1) * 2 * time.Second; asked != tc.asked || time.Since(start) != want {
					t.Errorf("%d requests in %s, want %d in %s", asked, time.Since(start), tc.asked, want)
				}
				if tc.want != nil {
					testenv.CheckError(t, err, auth.ErrDenied, tc.want...)
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A caller without time for a second try learns what is refused.
func TestStaleRefusalAtTheEndOfTheCall(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := 0
		entra := entraRefusing(&asked, "AADSTS700213: No matching")
		_, err := auth.GetAccessToken(ctx, &azure.Provider{}, w.Options("tenant-a", "app", auth.WithHTTPClient(entra))...)
		testenv.CheckError(t, err, auth.ErrDenied, "AADSTS700213")
		if asked != 1 {
			t.Errorf("%d requests", asked)
		}
	})
}

// A hostile service makes nothing large stay in memory, or be parsed.
func TestLargeAnswers(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	const ok, limit = http.StatusOK, "larger than 65536 bytes"
	fill := strings.Repeat("x", 65<<10)
	get := func(t *testing.T, client *http.Client) error {
		_, err := w.get(t, "tenant-a", "app", auth.WithHTTPClient(client))
		return err
	}
	registry := func(t *testing.T, client *http.Client) error {
		_, err := w.registryCredentials(t, &azure.Provider{}, "app", "example.azurecr.io/app", auth.WithHTTPClient(client))
		return err
	}
	cluster := func(t *testing.T, client *http.Client) error {
		_, err := w.restConfig(t, &azure.Provider{}, "app", auth.WithClusterResource(clusterID), auth.WithHTTPClient(client))
		return err
	}
	for name, tc := range map[string]struct {
		use    func(*testing.T, *http.Client) error
		path   string
		status int
		body   string
		reason provider.Reason
		want   string
	}{
		"token": {get, "/token", ok, `{"token_type":"Bearer","expires_in":60,"access_token":"t","x":"` + fill + `"}`,
			auth.ErrUnavailable, limit},
		"refusal of Entra": {get, "/token", 401, `{"error":"invalid_client","error_description":"` + fill + `"}`,
			auth.ErrUnavailable, limit},
		"refresh token": {registry, "/exchange", ok, `{"refresh_token":"` + fill + `"}`, auth.ErrUnavailable, limit},
		"refusal of ACR": {registry, "/exchange", 401, `{"errors":[{"code":"UNAUTHORIZED","message":"` + fill + `"}]}`,
			auth.ErrUnavailable, limit},
		"refusal of ARM": {cluster, "/my-cluster", 403, `{"error":{"code":"AuthorizationFailed","message":"` + fill + `"}}`,
			auth.ErrUnavailable, limit},
		"description by ARM": {cluster, "/my-cluster", ok, `{"properties":{"agentPoolProfiles":"` + fill + `"}}`,
			auth.ErrMisconfigured, "no Microsoft Entra integration"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.use(t, &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, tc.path) {
					return respond(r, tc.status, tc.body), nil
				}
				return respond(r, ok, goodToken), nil
			})})
			testenv.CheckError(t, err, tc.reason, tc.want)
		})
	}
}

// Transient answers drop no credential, whatever their status.
func TestTransientAnswers(t *testing.T) {
	w := newEnvironment(t)
	check := func(status int, text string, reason provider.Reason, kind func(*testing.T, *http.Client) error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/oauth2/v2.0/token") && !strings.Contains(text, "error_description") {
					return respond(r, http.StatusOK, goodToken), nil
				}
				return respond(r, status, text), nil
			})}
			testenv.CheckError(t, kind(t, client), reason, fmt.Sprintf("HTTP %d", status))
		})
	}
	token := func(t *testing.T, client *http.Client) error {
		_, err := w.get(t, "tenant-a", "app", auth.WithHTTPClient(client))
		return err
	}
	for _, number := range []int{50000, 90006, 90012, 90024, 90033, 90036, 90090, 90091} {
		check(400, fmt.Sprintf(`{"error":"invalid_request","error_description":"AADSTS%d: A transient error has occurred."}`,
			number), auth.ErrUnavailable, token)
	}
	registry := func(t *testing.T, client *http.Client) error {
		_, err := w.registryCredentials(t, &azure.Provider{}, "app", "example.azurecr.io/app", auth.WithHTTPClient(client))
		return err
	}
	manager := func(t *testing.T, client *http.Client) error {
		_, err := w.restConfig(t, &azure.Provider{}, "app", auth.WithClusterResource(clusterID), auth.WithHTTPClient(client))
		return err
	}
	for status, reason := range map[int]provider.Reason{408: auth.ErrUnavailable, 425: auth.ErrUnavailable,
		429: auth.ErrThrottled, 499: auth.ErrUnavailable, 502: auth.ErrUnavailable} {
		check(status, `{"error":"request_timeout","error_description":"x"}`, reason, token)
		check(status, `{"errors":[{"code":"TIMEOUT","message":"x"}]}`, reason, registry)
		check(status, `{"error":{"code":"RequestTimeout","message":"x"}}`, reason, manager)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(r *http.Request, status int, text string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: nopCloser{strings.NewReader(text)},
		ContentLength: int64(len(text))}
}

type nopCloser struct{ *strings.Reader }

func (nopCloser) Close() error { return nil }

// An issuer that is not reached for a moment is asked for again, a refusal is
// not.
func TestRetries(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.AddFault(cloudtest.Fault{Times: 1, Status: 400, Code: "invalid_request",
		Message: "AADSTS50166: Request to External OIDC endpoint failed."})
	w.Cloud.AddFault(cloudtest.Fault{Times: 1, Status: 503, Code: "temporarily_unavailable"})
	if _, err := w.get(t, "tenant-a", "app"); err != nil || w.Cloud.Calls("entra", "") != 3 {
		t.Errorf("%d calls, %v", w.Cloud.Calls("entra", ""), err)
	}
	w.Cloud.Azure().RemoveFederatedCredentials(tenantID, clientB)
	if _, err := w.get(t, "tenant-b", "app"); err == nil || w.Cloud.Calls("entra", "") != 4 {
		t.Errorf("a refusal was asked for again: %d calls, %v", w.Cloud.Calls("entra", ""), err)
	}
}

// A token lives from the moment that Entra issued it, which may be long before
// its answer arrives.
func TestLifetimeCountsFromTheRequest(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		const took = 20 * time.Second
		token, err := w.get(t, "tenant-a", "app", auth.WithHTTPClient(&http.Client{Transport: roundTrip(
			func(r *http.Request) (*http.Response, error) {
				time.Sleep(took) // of the bubble
				return respond(r, http.StatusOK, goodToken), nil
			})}))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := token.GetDuration(), time.Hour-took; got != want {
			t.Errorf("the token lives for %s, want %s", got, want)
		}
	})
}
