package exchange_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// The page of a proxy is no refusal by the service: a denial would drop a
// cached token that is valid.
func TestAnswersOfProxiesAreNotTheServices(t *testing.T) {
	eachService(t, func(t *testing.T, f *federation) {
		for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
			http.StatusNotFound} {
			t.Run(fmt.Sprint(status), func(t *testing.T) {
				f.Cloud.Handle(hostOf(t, f.provider.Endpoint), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/html")
					w.WriteHeader(status)
					_, _ = fmt.Fprint(w, "<html>log in</html>")
				}))
				_, err := f.get(t, f.provider)
				testenv.CheckError(t, err, auth.ErrUnavailable, `answers with "text/html"`)
			})
		}
	})
}

// Each service's own refusals, from its documents.
func TestReasonsOfServices(t *testing.T) {
	for name, tc := range map[string]struct {
		of     cloudtest.FederationService
		status int
		body   string
		reason provider.Reason
		want   string
	}{
		"Anthropic, form": {cloudtest.FederationAnthropic, 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"no such workspace"}}`,
			auth.ErrMisconfigured,
			`no such workspace (HTTP 400, invalid_request_error); check that Anthropic knows service_account_id "svac_1", ` +
				"the controller's federation_rule_id, the controller's organization_id"},
		"Anthropic, rule": {cloudtest.FederationAnthropic, 401,
			`{"type":"error","error":{"type":"authentication_error","message":"no rule"}}`,
			auth.ErrDenied, "let the server trust"},
		"Anthropic, empty error": {cloudtest.FederationAnthropic, 403, `{"error":{}}`, auth.ErrDenied, "Anthropic refuses"},
		"Confluent, empty error": {cloudtest.FederationConfluent, 400, `{"error":{}}`, auth.ErrDenied,
			"Confluent Cloud refuses"},
		"OpenAI, subject": {cloudtest.FederationOpenAI, 400, `{"error":"invalid_subject_token"}`, auth.ErrDenied,
			"let the server trust"},
		"OpenAI, access": {cloudtest.FederationOpenAI, 403, `{"error":"access_denied"}`, auth.ErrDenied,
			"let the server trust"},
		"OpenAI, unknown code": {cloudtest.FederationOpenAI, 400, `{"error":"brand_new"}`, auth.ErrDenied, "brand_new"},
		"Vault, permission": {cloudtest.FederationVault, 403, `{"errors":["permission denied"]}`, auth.ErrDenied,
			`role "app"`},
		"Vault, mount": {cloudtest.FederationVault, 404, `{"errors":[]}`, auth.ErrMisconfigured,
			`the mount "clusters/one" in the namespace "team/a"`},
		"Vault, throttled": {cloudtest.FederationVault, 429, `{"errors":["slow"]}`, auth.ErrThrottled, "Vault fails"},
		"Vault, sealed": {cloudtest.FederationVault, 503, `{"errors":["Vault is sealed"]}`, auth.ErrUnavailable,
			"Vault is sealed"},
		"Quay, robot": {cloudtest.FederationQuay, 401, `{"message":"no such robot"}`, auth.ErrDenied,
			`robot "org+robot"`},
		"octo-sts, no policy": {cloudtest.FederationOctoSTS, 404, `{"code":5,"message":"no trust policy"}`,
			auth.ErrDenied, `scope "org/repo"`},
		"Tailscale, subject": {cloudtest.FederationTailscale, 401, `{"message":"no credential"}`, auth.ErrDenied,
			`client_id "client-1"`},
		"Docker Hub, connection": {cloudtest.FederationDockerHub, 400, `{"error":"invalid_grant"}`, auth.ErrDenied,
			`connection_id "connection-1"`},
		"Databricks, no policy": {cloudtest.FederationDatabricks, 400, `{"error":"invalid_request"}`, auth.ErrDenied,
			`client_id "principal-1"`},
		"JSON that is no refusal": {cloudtest.FederationAnthropic, 401, `{}`, auth.ErrUnavailable, "what guards it"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFederation(t, tc.of)
			f.Cloud.Handle(hostOf(t, f.provider.Endpoint), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Request-Id", "req-7")
				w.WriteHeader(tc.status)
				_, _ = fmt.Fprint(w, tc.body)
			}))
			_, err := f.get(t, f.provider)
			testenv.CheckError(t, err, tc.reason, tc.want)
			if known := (*auth.Error)(nil); !errors.As(err, &known) || known.RequestID != "req-7" {
				t.Errorf("the request is %q", known.RequestID)
			}
		})
	}
}

// A wrong organization of Anthropic is the controller's mistake, a wrong
// service account the tenant's.
func TestAnthropicsOrganization(t *testing.T) {
	f := newFederation(t, cloudtest.FederationAnthropic)
	_, err := f.get(t, exchange.NewAnthropic("org-2", "rule-1", f.audience))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "HTTP 400", "the controller's organization_id")
	if strings.Contains(err.Error(), "org-2") {
		t.Errorf("the error shows a value of the controller's: %v", err)
	}
	_, err = f.get(t, exchange.NewAnthropic("org-1", "rule-2", f.audience))
	testenv.CheckError(t, err, auth.ErrDenied, "HTTP 401")
}

func TestAnthropicsWorkspace(t *testing.T) {
	f := newFederation(t, cloudtest.FederationAnthropic)
	f.provider.Parameters["workspace_id"] = "wrkspc_1"
	_, err := f.get(t, f.provider)
	testenv.CheckError(t, err, auth.ErrDenied, "workspace_id")
	parameters := maps.Clone(f.parameters)
	parameters["workspace_id"] = "wrkspc_1"
	f.AddRule(cloudtest.FederationRule{Issuer: f.Issuer.URL(), Subject: subject("tenant-a"), Audience: f.audience,
		Parameters: parameters})
	if _, err := f.get(t, f.provider); err != nil {
		t.Error(err)
	}
}

func TestAnthropicWithoutALifetime(t *testing.T) {
	f := newFederation(t, cloudtest.FederationAnthropic)
	defer f.Cloud.AddFault(cloudtest.Fault{Rewrite: func([]byte) []byte {
		return []byte(`{"access_token":"sk-ant-1"}`)
	}})()
	token, err := f.get(t, f.provider)
	if err != nil {
		t.Fatal(err)
	}
	if left := token.GetDuration(); left > f.provider.AssumedLifetime || left < f.provider.AssumedLifetime-time.Minute {
		t.Errorf("the token is valid for %s", left)
	}
}

// Anthropic takes a token once. After a lost answer a second try with it would
// be denied, which drops a cached token.
func TestAnthropicsTokensAreSentOnce(t *testing.T) {
	f := newFederation(t, cloudtest.FederationAnthropic)
	for name, fault := range map[string]cloudtest.Fault{
		"lost answer": {Times: 1, Rewrite: func([]byte) []byte { panic(http.ErrAbortHandler) }},
		"overloaded":  {Times: 1, Status: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.Cloud.Calls("", "")
			f.Cloud.AddFault(fault)
			_, err := f.get(t, f.provider)
			testenv.CheckError(t, err, auth.ErrUnavailable)
			if n := f.Cloud.Calls("", "") - before; n != 1 {
				t.Errorf("%d requests with one token", n)
			}
			if _, err := f.get(t, f.provider); err != nil {
				t.Errorf("the next call, with a new token: %v", err)
			}
		})
	}
	sa := testenv.ServiceAccount("tenant-a", "app")
	sa.Annotations = f.annotations
	inHand := auth.WithSubjectToken(auth.NewStaticTokenSource(f.Token(t, "tenant-a", "app", f.audience)), *sa)
	get := func() error {
		_, err := auth.GetAccessToken(t.Context(), f.provider, inHand, auth.WithHTTPClient(f.Cloud.Client()))
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	testenv.CheckError(t, get(), auth.ErrDenied, "used before")
}

// A TokenRequest repeats its token for most of an hour. Anthropic would refuse
// the renewal, which drops the cached token.
func TestAnthropicRefusesTokensThatRepeat(t *testing.T) {
	f := newFederation(t, cloudtest.FederationAnthropic)
	sa := testenv.ServiceAccount("tenant-a", "app")
	sa.Annotations = f.annotations
	source := &auth.TokenRequest{Client: f.Client, ServiceAccount: sa}
	_, err := auth.GetAccessToken(t.Context(), f.provider, auth.WithSubjectToken(source, *sa),
		testenv.Owner("tenant-a"), auth.WithHTTPClient(f.Cloud.Client()))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "takes each token once")
	testenv.ExpectNone(t, f.Requests())
	p := exchange.NewAnthropic("org-1", "rule-1", "our-audience")
	err = p.ValidateOptions(&provider.Options{TokenRepeats: true})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "takes each token once", "auth.WithServiceAccount")
	if err := p.ValidateOptions(&provider.Options{}); err != nil {
		t.Error(err)
	}
	if err := exchange.NewOpenAI("idp-1").ValidateOptions(&provider.Options{TokenRepeats: true}); err != nil {
		t.Errorf("OpenAI: %v", err)
	}
}

// A policy of Databricks' account finds the principal by claims. An account has
// an endpoint of its own.
func TestDatabricksAccount(t *testing.T) {
	f := newFederation(t, cloudtest.FederationDatabricks)
	f.AddRule(cloudtest.FederationRule{Issuer: f.Issuer.URL(), Subject: subject("tenant-b"), Audience: f.audience,
		Parameters: map[string]string{}})
	delete(f.provider.AnnotatedParameters, "client_id")
	if _, err := f.getFor(t.Context(), f.provider, "tenant-b"); err != nil {
		t.Error(err)
	}
	for address, want := range map[string]string{
		"https://accounts.cloud.databricks.com/oidc/accounts/id-1":  "https://accounts.cloud.databricks.com/oidc/accounts/id-1/v1/token",
		"https://accounts.cloud.databricks.com/oidc/accounts/id-1/": "https://accounts.cloud.databricks.com/oidc/accounts/id-1/v1/token",
		"https://dbc-1.cloud.databricks.com/":                       "https://dbc-1.cloud.databricks.com/oidc/v1/token",
	} {
		if got := exchange.NewDatabricks(address, "a").Endpoint; got != want {
			t.Errorf("%s: got %s", address, got)
		}
	}
}

func TestOpenAIsClientID(t *testing.T) {
	f := newFederation(t, cloudtest.FederationOpenAI)
	parameters := maps.Clone(f.parameters)
	parameters["client_id"] = "client-1"
	f.AddRule(cloudtest.FederationRule{Issuer: f.Issuer.URL(), Subject: subject("tenant-a"), Audience: f.audience,
		Parameters: parameters})
	f.provider.Parameters["client_id"] = "client-1"
	token, err := f.get(t, f.provider)
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := f.Identity(token.Reveal()); id.Parameters["client_id"] != "client-1" {
		t.Errorf("the service knows %+v", id)
	}
}

// Where a service publishes no audience, the controller names one.
func TestServicesWithoutAnAudience(t *testing.T) {
	for name, p := range map[string]*exchange.Provider{
		"anthropic":  exchange.NewAnthropic("org-1", "rule-1", ""),
		"confluent":  exchange.NewConfluent(""),
		"databricks": exchange.NewDatabricks("https://dbc-1.cloud.databricks.com", ""),
		"vault":      exchange.NewVault(exchange.VaultServer{Address: "https://vault.example"}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.GetAudiences(t.Context(), testenv.ServiceAccount("tenant-a", "app"), nil)
			testenv.CheckError(t, err, auth.ErrMisconfigured, "publishes no audience", "name the one that its configuration has")
		})
	}
}

// Docker Hub issues tokens for 5 to 60 minutes.
func TestDockerHubsLifetime(t *testing.T) {
	for value, passes := range map[string]bool{"300": true, "3600": true, "299": false, "3601": false, "x": false} {
		t.Run(value, func(t *testing.T) {
			f := newFederation(t, cloudtest.FederationDockerHub)
			f.AddRule(cloudtest.FederationRule{Issuer: f.Issuer.URL(), Subject: subject("tenant-a"), Audience: f.audience,
				Parameters: map[string]string{"connection_id": "connection-1", "expires_in": value}})
			f.provider.Parameters["expires_in"] = value
			token, err := f.get(t, f.provider)
			if !passes {
				testenv.CheckError(t, err, auth.ErrDenied, "expires_in")
				return
			}
			if err != nil || value == "300" && token.GetDuration() > 5*time.Minute {
				t.Errorf("got %v, %v", token, err)
			}
		})
	}
}

// Hosts have no case, and image references are in lower case.
func TestHostsOfServicesInLowerCase(t *testing.T) {
	f := newFederation(t, cloudtest.FederationQuay)
	if _, err := auth.GetArtifactRegistryCredentials(t.Context(), exchange.NewQuay("Quay.IO"), "quay.io/org/app",
		f.options("tenant-a")...); err != nil {
		t.Errorf("Quay: %v", err)
	}
	f = newFederation(t, cloudtest.FederationOctoSTS)
	if _, err := f.get(t, exchange.NewOctoSTS("Octo-STS.dev")); err != nil {
		t.Errorf("octo-sts: %v", err)
	}
}

const (
	// fositeRequest and fositeGrant begin each description of fosite with the
	// codes invalid_request and invalid_grant.
	fositeRequest = "The request is missing a required parameter, includes an invalid parameter value, includes a parameter more than once, " +
		"or is otherwise malformed. Make sure that the various parameters are correct, be aware of case sensitivity and trim your parameters. "
	fositeGrant = "The provided authorization grant (e.g., authorization code, resource owner credentials) or refresh token is invalid, expired, " +
		"revoked, does not match the redirection URI used in the authorization request, or was issued to another client. "
)

// Class and remedy follow from the grant, the code and what the request held,
// because a code means another thing in each.
func TestRefusalsByWhatWasSent(t *testing.T) {
	client := exchange.ClientSecretBasic("controller", secretOf("correct-horse-battery"))
	fosite :=
		`The JWT in "assertion" request parameter MUST contain an "aud" (audience) claim containing a value "https://hydra.example/oauth2/token" that identifies the authorization server.`
	for name, tc := range map[string]struct {
		provider      *exchange.Provider
		code, message string
		reason        provider.Reason
		want, not     string
	}{
		"fosite: no client": {&exchange.Provider{}, "invalid_request",
			fositeRequest + "Client credentials missing or malformed in both HTTP Authorization header and HTTP POST body.",
			auth.ErrDenied,
			"or correct token exchange (RFC 8693), the missing client (exchange.Provider.Grant, exchange.Provider.Parameters, exchange.Provider.Client)", ""},
		"fosite: the cause of a long text": {&exchange.Provider{Grant: exchange.GrantJWTBearer}, "invalid_grant",
			fositeGrant + fosite, auth.ErrDenied, `containing a value "https://hydra.example/oauth2/token" that identifies`, ""},
		"fosite: grant without a handler": {&exchange.Provider{Grant: exchange.GrantJWTBearer, Client: client},
			"invalid_request", fositeRequest,
			auth.ErrMisconfigured, `correct the grant urn:ietf:params:oauth:grant-type:jwt-bearer, the client "controller"`,
			"let the server trust"},
		"Dex: unknown connector": {&exchange.Provider{Client: client, Parameters: map[string]string{"connector_id": "x1"}},
			"invalid_request", "Requested connector does not exist.",
			auth.ErrDenied, `or correct token exchange (RFC 8693), the client "controller", the parameter connector_id`, "x1"},
		"Dex: token types": {&exchange.Provider{RequestedTokenType: exchange.TokenTypeJWT}, "request_not_supported",
			"Invalid requested_token_type.",
			auth.ErrMisconfigured,
			`unlike subject_token_type "urn:ietf:params:oauth:token-type:jwt" and requested_token_type "urn:ietf:params:oauth:token-type:jwt"`, ""},
		"request_not_supported of an assertion": {&exchange.Provider{Grant: exchange.GrantJWTBearer},
			"request_not_supported", "",
			auth.ErrMisconfigured, "correct the grant urn:ietf:params:oauth:grant-type:jwt-bearer", "token_type"},
		"assertion: malformed": {&exchange.Provider{Grant: exchange.GrantClientCredentials}, "invalid_request", "",
			auth.ErrMisconfigured,
			"correct the grant client_credentials (exchange.Provider.Grant, exchange.Provider.Parameters)",
			"let the server trust"},
		"assertion: not trusted": {&exchange.Provider{Grant: exchange.GrantJWTBearer}, "invalid_grant", "",
			auth.ErrDenied, "let the server trust issuer", ""},
		"client may not use jwt-bearer": {&exchange.Provider{Grant: exchange.GrantJWTBearer, Client: client},
			"unauthorized_client", "",
			auth.ErrDenied, "allow the grant urn:ietf:params:oauth:grant-type:jwt-bearer to the client", "token exchange to"},
		"no client that may exchange": {&exchange.Provider{}, "unauthorized_client", "",
			auth.ErrDenied,
			"allow token exchange to the client at the server, or set the client that has it (exchange.Provider.Client)", ""},
		"no client": {&exchange.Provider{}, "invalid_client", "", auth.ErrMisconfigured,
			"set the client as which the controller is registered", "secret or key"},
		"another client": {&exchange.Provider{Client: client}, "invalid_client", "", auth.ErrMisconfigured,
			"secret or key have to be", ""},
		"no target": {&exchange.Provider{}, "invalid_target", "", auth.ErrDenied,
			"name the service that accepts the token", `""`},
		"an audience alone": {&exchange.Provider{Audience: "api"}, "invalid_target", "", auth.ErrDenied,
			`allow audience "api" to this`, "resource"},
		"a resource alone": {&exchange.Provider{Resource: api}, "invalid_target", "", auth.ErrDenied,
			`allow resource "` + api + `" to this`, "audience"},
		"no scope": {&exchange.Provider{}, "invalid_scope", "", auth.ErrDenied,
			"request a scope that the server allows (auth.WithScopes, exchange.Provider.DefaultScopes)", "[]"},
		"scopes of the provider": {&exchange.Provider{DefaultScopes: []string{"read"}}, "invalid_scope", "", auth.ErrDenied,
			`allow the scopes ["read"]`, ""},
		"grant that is not known": {&exchange.Provider{}, "unsupported_grant_type", "", auth.ErrMisconfigured,
			"(exchange.Provider.Grant)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			tc.provider.Endpoint = w.oauth.TokenEndpoint()
			w.Cloud.AddFault(cloudtest.Fault{Status: http.StatusBadRequest, Code: tc.code, Message: tc.message})
			_, err := w.get(t, tc.provider)
			testenv.CheckError(t, err, tc.reason, tc.want)
			if tc.not != "" && strings.Contains(err.Error(), tc.not) {
				t.Errorf("%q is in %v", tc.not, err)
			}
		})
	}
}
