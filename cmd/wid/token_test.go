package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// Every provider, with a token in hand.
func TestToken(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	endpoint := w.cloud.OAuth().TokenEndpoint()
	for provider, tc := range map[string]struct {
		audience string
		flags    []string
		secret   string
		valid    func(values map[string]string) bool
	}{
		"aws": {aws.DefaultAudience, []string{"--region=eu-central-1"}, "AWS_SECRET_ACCESS_KEY",
			func(v map[string]string) bool {
				id, ok := w.cloud.AWS().Identity(v["AWS_ACCESS_KEY_ID"])
				return ok && id.RoleARN == role("tenant-a") && v["AWS_SESSION_TOKEN"] != ""
			}},
		"azure": {azure.DefaultAudience, []string{"--scope=https://management.azure.com/.default"}, "AZURE_ACCESS_TOKEN",
			func(v map[string]string) bool {
				id, ok := w.cloud.Azure().Identity(v["AZURE_ACCESS_TOKEN"])
				return ok && id.ClientID == azureClient
			}},
		"gcp": {"//iam.googleapis.com/" + gcpProvider, nil, "CLOUDSDK_AUTH_ACCESS_TOKEN", func(v map[string]string) bool {
			_, ok := w.cloud.GCP().Identity(v["CLOUDSDK_AUTH_ACCESS_TOKEN"])
			return ok
		}},
		"generic": {"vault", []string{"--audience=vault"}, "WID_TOKEN", func(v map[string]string) bool {
			return strings.HasPrefix(v["WID_TOKEN"], "eyJ")
		}},
		"exchange": {endpoint, []string{"--exchange-endpoint=" + endpoint}, "WID_TOKEN", func(v map[string]string) bool {
			id, ok := w.cloud.OAuth().Identity(v["WID_TOKEN"])
			return ok && id.Subject == subjectOfApp
		}},
	} {
		t.Run(provider, func(t *testing.T) {
			args := append([]string{"token", "--provider=" + provider, w.tokenFile(t, tc.audience)},
				append(tc.flags, annotationFlags()...)...)
			var open, closed struct {
				Provider, ServiceAccount, Identity, Expires string
				Values                                      map[string]string
				Redacted                                    []string
			}
			if err := json.Unmarshal([]byte(w.mustWid(t, "", append(args, "-o=json", "--reveal")...)), &open); err != nil {
				t.Fatal(err)
			}
			if !tc.valid(open.Values) || open.Provider != provider || open.ServiceAccount != "tenant-a/app" ||
				open.Expires == "" || len(open.Redacted) != 0 {
				t.Errorf("got %+v", open)
			}
			secret := open.Values[tc.secret]
			env := w.mustWid(t, "", append(args, "-o=env", "--reveal")...)
			if len(secret) < 20 || !strings.Contains(env, "export "+tc.secret+"='"+secret+"'\n") {
				t.Errorf("the environment is %s", env)
			}
			redacted := w.mustWid(t, "", append(args, "-o=json")...)
			if err := json.Unmarshal([]byte(redacted), &closed); err != nil || closed.Values[tc.secret] != "" ||
				len(closed.Redacted) == 0 {
				t.Errorf("%v: %s", err, redacted)
			}
			table := w.mustWid(t, "", args...)
			if strings.Contains(redacted+table, secret) || strings.Contains(redacted+table, "eyJ") ||
				!strings.Contains(table, "tenant-a/app") {
				t.Errorf("the table is %s", table)
			}
			if table := w.mustWid(t, "", append(args, "--reveal")...); !strings.Contains(table, secret) {
				t.Errorf("the whole table is %s", table)
			}
		})
	}
}

// Without a ServiceAccount it is the identity of the process: nothing of it is
// kept on disk.
func TestTokenOfTheControllerItself(t *testing.T) {
	w := newEnvironment(t)
	w.write(t, filepath.Join(w.home, "web-identity"), w.jwt(t, aws.DefaultAudience))
	env := []string{"AWS_ROLE_ARN=" + role("tenant-a"),
		"AWS_WEB_IDENTITY_TOKEN_FILE=" + filepath.Join(w.home, "web-identity"), "AWS_REGION=eu-central-1"}
	for range 2 {
		r := w.exec(t, "", env, "wid", "token", "--provider=aws", "-o=json")
		if r.code != 0 || !strings.Contains(r.stdout, `"AWS_ACCESS_KEY_ID": "ASIA`) ||
			strings.Contains(r.stdout, "serviceAccount") {
			t.Errorf("%+v", r)
		}
	}
	if _, err := os.Stat(filepath.Join(w.home, ".cache", "workloadid")); err == nil || w.mints() != 2 {
		t.Errorf("%d exchanges, the cache: %v", w.mints(), err)
	}
}

// The only cloud in the annotations is the provider, and --provider has any
// case.
func TestProviderOfAnnotations(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for name, args := range map[string][]string{
		"aws": {w.tokenFile(t, aws.DefaultAudience), "--region=eu-central-1",
			"--annotation=" + aws.RoleARNAnnotation + "=" + role("tenant-a")},
		"azure": {w.tokenFile(t, azure.DefaultAudience), "--scope=https://management.azure.com/.default",
			"--annotation=" + azure.ClientIDAnnotation + "=" + azureClient,
			"--annotation=" + azure.TenantIDAnnotation + "=" + azureTenant},
		"gcp": {w.tokenFile(t, "//iam.googleapis.com/"+gcpProvider),
			"--annotation=" + gcp.WorkloadIdentityProviderAnnotation + "=" + gcpProvider},
		"aws, upper case": append(w.inHand(t), "--provider=AWS"),
	} {
		provider, _, _ := strings.Cut(name, ",")
		t.Run(name, func(t *testing.T) {
			if out := w.mustWid(t, "", append([]string{"token", "-o=yaml"}, args...)...); !strings.Contains(out,
				"provider: "+provider+"\n") {
				t.Error(out)
			}
		})
	}
}

// revealed are the values of wid token.
func (w *environment) revealed(t *testing.T, args ...string) (values map[string]string, life time.Duration) {
	t.Helper()
	var got struct {
		Expires time.Time
		Values  map[string]string
	}
	out := w.mustWid(t, "", append([]string{"token", "-o=json", "--reveal"}, args...)...)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	return got.Values, time.Until(got.Expires)
}

// All that shapes a role that is assumed with another one arrives at AWS.
func TestRoleChaining(t *testing.T) {
	w := newEnvironment(t)
	w.cloud.AWS().SetRole(role("shared"),
		cloudtest.Trust{Principals: []string{role("tenant-a")}, ExternalID: "ext-1", TagSession: true,
			SetSourceIdentity: true})
	chain := []string{"--assume-role=" + role("shared"), "--external-id=ext-1", "--session-tag=team=a,env=prod",
		"--transitive-tag-key=team",
		"--source-identity=tenant-a", "--session-duration=20m", "--session-name-prefix=hub",
		`--session-policy={"Version":"2012-10-17","Statement":[]}`}
	values, life := w.revealed(t, slices.Concat([]string{"--provider=aws"}, w.inHand(t), chain)...)
	id, ok := w.cloud.AWS().Identity(values["AWS_ACCESS_KEY_ID"])
	if !ok || id.RoleARN != role("shared") || id.SessionName != "hub=tenant-a.app" || id.SourceIdentity != "tenant-a" ||
		life > 20*time.Minute ||
		!maps.Equal(id.Tags, map[string]string{"team": "a", "env": "prod"}) ||
		!slices.Equal(id.TransitiveTagKeys, []string{"team"}) {
		t.Errorf("got %+v for %s", id, life)
	}
	// Several roles are assumed in their order, and the other flags shape the
	// last one.
	w.cloud.AWS().SetRole(role("last"), cloudtest.Trust{Principals: []string{role("between")}, ExternalID: "ext-1"})
	w.cloud.AWS().SetRole(role("between"), cloudtest.Trust{Principals: []string{role("tenant-a")}})
	values, _ = w.revealed(t, slices.Concat([]string{"--provider=aws"}, w.inHand(t),
		[]string{"--assume-role=" + role("between"), "--assume-role=" + role("last"), "--external-id=ext-1",
			"--session-name=exactly"})...)
	if id, _ := w.cloud.AWS().Identity(values["AWS_ACCESS_KEY_ID"]); id.RoleARN != role("last") ||
		id.SessionName != "exactly" {
		t.Errorf("got %+v", id)
	}
	// Plugins do it too, and by the environment.
	env := []string{"WID_ASSUME_ROLE=" + role("shared"), "WID_EXTERNAL_ID=ext-1"}
	r := w.exec(t, "", env, "wid", append([]string{"credential-process"}, w.inHand(t)...)...)
	if r.code != 0 || !strings.Contains(r.stdout, `"AccountId":"`+account) {
		t.Errorf("%+v", r)
	}
	// What is in the environment for AWS is no obstacle for the others.
	if r := w.exec(t, "", env, "wid",
		append([]string{"token", "--provider=generic", "--audience=vault", w.tokenFile(t, "vault")},
			annotationFlags()...)...); r.code != 0 {
		t.Errorf("%+v", r)
	}
}

// Delegates, the life of an access token, and ID tokens.
func TestExtrasOfGoogle(t *testing.T) {
	w := newEnvironment(t)
	email := func(name string) string { return name + "@project.iam.gserviceaccount.com" }
	principal := "principal://iam.googleapis.com/" + strings.TrimSuffix(gcpProvider, "/providers/east") + "/subject/" +
		subjectOfApp
	w.cloud.GCP().SetServiceAccount(email("first"),
		cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{principal}})
	w.cloud.GCP().SetServiceAccount(email("last"),
		cloudtest.GCPServiceAccount{TokenCreators: []string{"serviceAccount:" + email("first")}})
	args := []string{"--provider=gcp", w.tokenFile(t, "//iam.googleapis.com/"+gcpProvider),
		"--annotation=" + gcp.WorkloadIdentityProviderAnnotation + "=" + gcpProvider,
		"--annotation=" + gcp.ServiceAccountAnnotation + "=" + email("last"), "--delegate=" + email("first")}
	values, life := w.revealed(t, append(args, "--access-token-lifetime=15m")...)
	id, ok := w.cloud.GCP().Identity(values["CLOUDSDK_AUTH_ACCESS_TOKEN"])
	if !ok || id.Email != email("last") || life > 15*time.Minute || life < 10*time.Minute {
		t.Errorf("got %+v for %s", id, life)
	}
	values, _ = w.revealed(t, append(args, "--id-token-audience=https://service.example")...)
	var claims struct{ Aud, Email string }
	claimsOf(values["WID_ID_TOKEN"], &claims)
	if claims.Aud != "https://service.example" || claims.Email != email("last") || len(values) != 1 {
		t.Errorf("%d values, an ID token of %+v", len(values), claims)
	}
	if out := w.mustWid(t, "",
		append([]string{"token"}, append(args, "--id-token-audience=https://service.example")...)...); strings.Contains(out,
		"eyJ") || !strings.Contains(out, "WID_ID_TOKEN") {
		t.Errorf("not redacted: %s", out)
	}
}

// The authority of another cloud, which the environment would have to name
// otherwise.
func TestAuthorityHost(t *testing.T) {
	w := newEnvironment(t)
	const tenant, us, audience = "b8e3e4f6-86f1-41af-91ab-2d7cd011db47", "https://login.microsoftonline.us",
		azure.DefaultAudience + "USGov"
	w.cloud.Azure().AddTenant("login.microsoftonline.us", tenant)
	w.cloud.Azure().AddFederatedCredential(tenant, azureClient,
		cloudtest.FederatedCredential{Issuer: w.issuer.URL(), Subject: subjectOfApp,
			Audience: audience, Fetch: w.issuer.HTTPClient()})
	args := []string{"--provider=azure", "--annotation=" + azure.ClientIDAnnotation + "=" + azureClient,
		"--annotation=" + azure.TenantIDAnnotation + "=" + tenant}
	values, _ := w.revealed(t, append(args, w.tokenFile(t, audience), "--authority-host="+us)...)
	calls := w.cloud.Log()
	if id, ok := w.cloud.Azure().Identity(values["AZURE_ACCESS_TOKEN"]); !ok || id.Tenant != tenant ||
		calls[len(calls)-1].Host != "login.microsoftonline.us" {
		t.Errorf("got %+v", id)
	}
	if r := w.wid(t, "", append([]string{"token", w.tokenFile(t, azure.DefaultAudience)}, args...)...); r.code == 0 {
		t.Error("the public cloud knows the tenant")
	}
}

// A server that wants to know its clients.
func TestClientOfAnExchange(t *testing.T) {
	w := newEnvironment(t)
	o := w.cloud.OAuth()
	o.Configure(cloudtest.OAuthConfig{RequireClient: true})
	o.SetClient(cloudtest.OAuthClient{ID: "wid", Method: "client_secret_basic", Secret: "p:w"})
	secret := filepath.Join(w.home, "secret")
	w.write(t, secret, "p:w\n")
	args := []string{"--provider=exchange", w.tokenFile(t, o.TokenEndpoint()), "--exchange-endpoint=" + o.TokenEndpoint()}
	if r := w.wid(t, "", append([]string{"token"}, args...)...); r.code == 0 ||
		!strings.Contains(r.stderr, "--exchange-client-id") {
		t.Errorf("without a client: %+v", r)
	}
	client := append(args, "--exchange-client-id=wid", "--exchange-client-secret-file="+secret,
		"--exchange-token-type=urn:ietf:params:oauth:token-type:access_token")
	values, _ := w.revealed(t, client...)
	if id, ok := o.Identity(values["WID_TOKEN"]); !ok || id.Subject != subjectOfApp {
		t.Errorf("got %+v", id)
	}
	w.write(t, secret, "another")
	if r := w.wid(t, "", append([]string{"token"}, client...)...); r.code == 0 ||
		strings.Contains(r.stderr+r.stdout, "another") {
		t.Errorf("with another secret: %+v", r)
	}
}

// A service that trusts the cluster's issuer, by flags alone, and with an
// annotation.
func TestServiceOfAnExchange(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		fake       cloudtest.FederationService
		args       []string
		parameters map[string]string
	}{
		"vault": {cloudtest.FederationVault,
			[]string{"--service=vault", "--service-address=https://vault.example", "--service-parameter=namespace=team",
				"--service-parameter=role=app"}, map[string]string{"role": "app", "namespace": "team"}},
		"anthropic": {cloudtest.FederationAnthropic,
			[]string{"--provider=exchange", "--service=anthropic", "--service-parameter=organization_id=o",
				"--service-parameter=federation_rule_id=r",
				"--annotation=" + exchange.AnthropicServiceAccountAnnotation + "=svac_1"},
			map[string]string{"organization_id": "o", "federation_rule_id": "r", "service_account_id": "svac_1"}},
	} {
		t.Run(name, func(t *testing.T) {
			fake := w.cloud.Federation(tc.fake)
			fake.AddIssuer(w.issuer.URL(), w.issuer.HTTPClient())
			fake.AddRule(cloudtest.FederationRule{Issuer: w.issuer.URL(), Subject: subjectOfApp, Audience: "ours",
				Parameters: tc.parameters})
			args := append(tc.args, w.tokenFile(t, "ours"), "--audience=ours")
			values, _ := w.revealed(t, args...)
			if id, ok := fake.Identity(values["WID_TOKEN"]); !ok || id.Subject != subjectOfApp {
				t.Errorf("got %+v", id)
			}
			r := w.wid(t, "",
				append([]string{"token"},
					append(args, "--service-parameter="+
						map[string]string{"vault": "role", "anthropic": "service_account_id"}[name]+"=other")...)...)
			if r.code == 0 || !strings.Contains(r.stderr, name+": ServiceAccount") {
				t.Errorf("with another parameter: %+v", r)
			}
		})
	}
}

// What contradicts itself, or would have no effect, is refused before anything
// is asked.
func TestMistakesInExtras(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	inHand := w.inHand(t)
	for name, tc := range map[string]struct {
		args []string
		env  string
		code int
		want string
	}{
		"of another provider": {[]string{"--provider=azure", "--assume-role=" + role("x")}, "", cli.ExitUsage,
			"--assume-role is for the provider aws"},
		"provider by variable": {[]string{"--delegate=x"}, "WID_PROVIDER=aws", cli.ExitUsage,
			"--delegate is for the provider gcp"},
		"no role": {[]string{"--provider=aws", "--external-id=x"}, "", cli.ExitUsage,
			"--external-id goes with --assume-role"},
		"no role, variable": {[]string{"--provider=aws"}, "WID_SOURCE_IDENTITY=x", cli.ExitUsage,
			"--source-identity goes with --assume-role"},
		"session name": {[]string{"--provider=aws", "--assume-role=" + role("x"), "--session-name=a b"}, "",
			cli.ExitMisconfigured, `"a b"`},
		"tag": {[]string{"--provider=aws", "--assume-role=" + role("x"), "--session-tag=x"}, "",
			cli.ExitUsage, "key=value"},
		"tag twice": {[]string{"--provider=aws", "--assume-role=" + role("x"), "--session-tag=x=1,x=2"}, "",
			cli.ExitUsage, "each key once"},
		"role": {[]string{"--provider=aws", "--assume-role=shared"}, "", cli.ExitMisconfigured,
			"use arn:aws:iam::<account>:role/<name> (--assume-role)"},
		"policy": {[]string{"--provider=aws", "--assume-role=" + role("x"), "--session-policy={"}, "",
			cli.ExitMisconfigured, "JSON"},
		"duration": {[]string{"--provider=aws", "--session-duration=0s"}, "", cli.ExitMisconfigured,
			"(--session-duration)"},
		"prefix": {[]string{"--provider=aws", "--session-name-prefix="}, "", cli.ExitUsage,
			"--session-name-prefix: it is set but empty"},
		"life, token": {[]string{"--provider=aws", "--token-lifetime=20m"}, "", cli.ExitMisconfigured,
			"leave them out"},
		"shell": {[]string{"--provider=aws", "--allow-shell-out"}, "", cli.ExitUsage, "wid's own identity"},
		"delegate": {[]string{"--provider=gcp", "--delegate=jane@example.com"}, "", cli.ExitMisconfigured,
			"jane@example.com"},
		"life and ID token": {[]string{"--provider=gcp", "--access-token-lifetime=15m", "--id-token-audience=x"}, "",
			cli.ExitMisconfigured, "leave it out (--access-token-lifetime)"},
		"authority": {[]string{"--provider=azure", "--authority-host=http://x"}, "", cli.ExitMisconfigured,
			"https://"},
		"universe": {[]string{"--provider=gcp", "--universe-domain=x y"}, "", cli.ExitMisconfigured,
			"--universe-domain"},
		"secret": {[]string{"--provider=exchange", "--exchange-client-secret-file=x"}, "", cli.ExitUsage,
			"--exchange-client-id"},
		"two servers": {[]string{"--provider=exchange", "--exchange-endpoint=https://x",
			"--exchange-issuer=https://x"}, "", cli.ExitMisconfigured, "leave one out (--exchange-endpoint, --exchange-issuer)"},
		"unknown service": {[]string{"--service=okta"}, "", cli.ExitUsage,
			`--service "okta" is unknown: use one of: anthropic, `},
		"service and endpoint": {[]string{"--service=vault", "--service-address=https://x", "--exchange-endpoint=https://x"},
			"", cli.ExitUsage, "leave out --exchange-"},
		"unknown parameter": {[]string{"--service=openai", "--service-parameter=identity_provider=x"}, "", cli.ExitUsage,
			`--service openai takes no parameter "identity_provider", but: identity_provider_id, service_account_id, client_id`},
		"no service": {[]string{"--provider=exchange", "--service-address=https://x"}, "", cli.ExitUsage,
			"go with --service"},
		"service of a cloud": {[]string{"--provider=aws", "--service=vault", "--service-address=https://x"}, "",
			cli.ExitUsage, "--service is for the provider exchange"},
		"no address": {[]string{"--service=vault", "--service-parameter=role=x", "--audience=x"}, "", cli.ExitUsage,
			"--service-address"},
		"no secret": {[]string{"--provider=exchange", "--exchange-endpoint=https://x/t", "--exchange-client-id=x",
			"--exchange-client-secret-file=/nonexistent", "--audience=sts.amazonaws.com"},
			"", cli.ExitMisconfigured, "--exchange-client-secret-file cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.exec(t, "", []string{tc.env}, "wid", slices.Concat([]string{"token"}, inHand, tc.args)...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.want) || r.stdout != "" {
				t.Errorf("got %+v, want code %d and %s", r, tc.code, tc.want)
			}
		})
	}
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

// A program that the AWS configuration names is run if the caller says so.
func TestAllowShellOut(t *testing.T) {
	w := newEnvironment(t)
	id, secret := w.cloud.AWS().AddUser(account, "somebody")
	keys := filepath.Join(w.home, "keys.json")
	w.write(t, keys, `{"Version":1,"AccessKeyId":"`+id+`","SecretAccessKey":"`+secret+`"}`)
	w.write(t, filepath.Join(w.home, ".aws", "config"), "[default]\ncredential_process = cat "+keys+"\n")
	args := []string{"token", "--provider=aws", "--region=eu-central-1", "-o=json"}
	if r := w.wid(t, "", args...); r.code != cli.ExitMisconfigured || !strings.Contains(r.stderr, "--allow-shell-out") ||
		r.stdout != "" {
		t.Errorf("%+v", r)
	}
	if out := w.mustWid(t, "", append(args, "--allow-shell-out")...); !strings.Contains(out, id) ||
		strings.Contains(out, secret) {
		t.Errorf("got %s", out)
	}
}

// The API server is asked for a token that expires earlier than others.
func TestTokenLifetime(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	_, life := w.revealed(t,
		append([]string{"--provider=generic", "--audience=vault", "--token-lifetime=12m"}, w.app()[:2]...)...)
	if life > 12*time.Minute {
		t.Errorf("it lasts %s", life)
	}
}
