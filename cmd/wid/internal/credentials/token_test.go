package credentials

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/jwt"
)

// Every provider, with a token in hand, in every format. The only cloud in the
// annotations is the provider. Secrets are shown on request.
func TestToken(t *testing.T) {
	w := newEnvironment(t)
	endpoint := w.cloud.OAuth().TokenEndpoint()
	for provider, tc := range map[string]struct {
		audience string
		flags    []string
		secret   string
		valid    func(values map[string]string) bool
	}{
		"aws": {aws.DefaultAudience, append(w.annotationFlags("eks."), "--region=eu-central-1"), "AWS_SECRET_ACCESS_KEY",
			func(v map[string]string) bool {
				id, ok := w.cloud.AWS().Identity(v["AWS_ACCESS_KEY_ID"])
				return ok && id.RoleARN == role("tenant-a") && v["AWS_SESSION_TOKEN"] != ""
			}},
		"azure": {azure.DefaultAudience,
			append(w.annotationFlags("azure."), "--scope=https://management.azure.com/.default"), "AZURE_ACCESS_TOKEN",
			func(v map[string]string) bool {
				id, ok := w.cloud.Azure().Identity(v["AZURE_ACCESS_TOKEN"])
				return ok && id.ClientID == azureClient
			}},
		"gcp": {gcpAudience, w.annotationFlags("gcp."), "CLOUDSDK_AUTH_ACCESS_TOKEN", func(v map[string]string) bool {
			_, ok := w.cloud.GCP().Identity(v["CLOUDSDK_AUTH_ACCESS_TOKEN"])
			return ok
		}},
		"generic": {"vault", []string{"--provider=Generic", "--audience=vault"}, "WID_TOKEN",
			func(v map[string]string) bool { return strings.HasPrefix(v["WID_TOKEN"], "eyJ") }},
		"exchange": {endpoint, []string{"--provider=exchange", "--exchange-endpoint=" + endpoint}, "WID_TOKEN",
			func(v map[string]string) bool {
				id, ok := w.cloud.OAuth().Identity(v["WID_TOKEN"])
				return ok && id.Subject == subjectOfApp
			}},
	} {
		t.Run(provider, func(t *testing.T) {
			w.t = t
			args := append([]string{"token", w.tokenFile(tc.audience)}, tc.flags...)
			var open, closed shown
			if err := json.Unmarshal([]byte(w.must("", append(args, "-o=json", "--reveal")...)), &open); err != nil {
				t.Fatal(err)
			}
			secret := open.Values[tc.secret]
			if !tc.valid(open.Values) || open.Provider != provider || open.ServiceAccount != "tenant-a/app" ||
				open.Expires == nil || len(open.Redacted) != 0 || len(secret) < 20 {
				t.Errorf("got %+v, want the credential of tenant-a/app", open)
			}
			hidden := w.must("", append(args, "-o=json")...)
			if err := json.Unmarshal([]byte(hidden), &closed); err != nil || !slices.Contains(closed.Redacted, tc.secret) {
				t.Errorf("got %s, %v, want %s redacted", hidden, err, tc.secret)
			}
			hidden += w.must("", args...)
			if strings.Contains(hidden, secret) || strings.Contains(hidden, "eyJ") {
				t.Errorf("without --reveal it prints the secret:\n%s", hidden)
			}
			for format, want := range map[string]string{"env": "export " + tc.secret + "='" + secret + "'\n",
				"table": secret + "\n", "yaml": "\nprovider: " + provider + "\n"} {
				if out := w.must("", append(args, "--reveal", "-o="+format)...); !strings.Contains("\n"+out, want) {
					t.Errorf("as %s: got\n%s\nwant %q", format, out, want)
				}
			}
		})
	}
}

// Without a ServiceAccount it is the identity of the process: nothing of it is
// kept on disk.
func TestTokenOfTheControllerItself(t *testing.T) {
	w := newEnvironment(t)
	t.Setenv("AWS_ROLE_ARN", role("tenant-a"))
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", strings.TrimPrefix(w.tokenFile(aws.DefaultAudience), "--token-file="))
	for range 2 {
		out := w.must("", "token", "--provider=aws", "--region=eu-central-1", "-o=json")
		if !strings.Contains(out, `"AWS_ACCESS_KEY_ID": "ASIA`) || strings.Contains(out, "serviceAccount") {
			t.Errorf("got %s, want keys of nobody's ServiceAccount", out)
		}
	}
	if w.mints() != 2 {
		t.Errorf("got %d exchanges, want 2", w.mints())
	}
}

// All that shapes a role that is assumed with another one arrives at AWS.
func TestRoleChaining(t *testing.T) {
	w := newEnvironment(t)
	trusted := func(name, by string, change func(*cloudtest.Trust)) {
		trust := cloudtest.Trust{Principals: []string{role(by)}}
		change(&trust)
		w.cloud.AWS().SetRole(role(name), trust)
	}
	trusted("shared", "tenant-a", func(trust *cloudtest.Trust) {
		trust.ExternalID, trust.TagSession, trust.SetSourceIdentity = "ext-1", true, true
	})
	values, life := w.revealed(append(w.inHand(), "--provider=aws", "--assume-role="+role("shared"),
		"--external-id=ext-1", "--session-tag=team=a,env=prod", "--transitive-tag-key=team", "--source-identity=tenant-a",
		"--session-duration=20m", "--session-name-prefix=hub",
		`--session-policy={"Version":"2012-10-17","Statement":[]}`)...)
	id, _ := w.cloud.AWS().Identity(values["AWS_ACCESS_KEY_ID"])
	if id.RoleARN != role("shared") || id.SessionName != "hub=tenant-a.app" || id.SourceIdentity != "tenant-a" ||
		life > 20*time.Minute || !maps.Equal(id.Tags, map[string]string{"team": "a", "env": "prod"}) ||
		!slices.Equal(id.TransitiveTagKeys, []string{"team"}) {
		t.Errorf("got %+v for %s, want the role shared with everything that the flags say", id, life)
	}
	// Several roles are assumed in their order, and the other flags shape the
	// last one.
	trusted("between", "tenant-a", func(*cloudtest.Trust) {})
	trusted("last", "between", func(trust *cloudtest.Trust) { trust.ExternalID = "ext-1" })
	values, _ = w.revealed(append(w.inHand(), "--provider=aws", "--assume-role="+role("between"),
		"--assume-role="+role("last"), "--external-id=ext-1", "--session-name=exactly")...)
	if id, _ := w.cloud.AWS().Identity(values["AWS_ACCESS_KEY_ID"]); id.RoleARN != role("last") ||
		id.SessionName != "exactly" {
		t.Errorf("got %+v, want the session exactly of the role last", id)
	}
	// Plugins do it too, and by the environment, which is no obstacle for other
	// providers.
	t.Setenv("WID_ASSUME_ROLE", role("shared"))
	t.Setenv("WID_EXTERNAL_ID", "ext-1")
	var keys struct{ AccessKeyID string }
	out := w.must("", append([]string{"credential-process"}, w.inHand()...)...)
	if err := json.Unmarshal([]byte(out), &keys); err != nil {
		t.Fatal(err)
	}
	if id, _ := w.cloud.AWS().Identity(keys.AccessKeyID); id.RoleARN != role("shared") {
		t.Errorf("by the environment: got %+v, want the role shared", id)
	}
	w.must("", "token", "--provider=generic", "--audience=vault", w.tokenFile("vault"))
}

// Delegates, the life of an access token, and ID tokens.
func TestExtrasOfGoogle(t *testing.T) {
	w := newEnvironment(t)
	email := func(name string) string { return name + "@project.iam.gserviceaccount.com" }
	w.cloud.GCP().SetServiceAccount(email("first"),
		cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{principal}})
	w.cloud.GCP().SetServiceAccount(email("last"),
		cloudtest.GCPServiceAccount{TokenCreators: []string{"serviceAccount:" + email("first")}})
	args := append(w.annotationFlags("gcp."), w.tokenFile(gcpAudience),
		"--annotation="+gcp.ServiceAccountAnnotation+"="+email("last"), "--delegate="+email("first"))
	values, life := w.revealed(append(args, "--access-token-lifetime=15m")...)
	if id, _ := w.cloud.GCP().Identity(values["CLOUDSDK_AUTH_ACCESS_TOKEN"]); id.Email != email("last") ||
		life > 15*time.Minute || life < 10*time.Minute {
		t.Errorf("got %+v for %s, want %s for 15m", id, life, email("last"))
	}
	args = append(args, "--id-token-audience=https://service.example")
	values, _ = w.revealed(args...)
	claims, err := jwt.Parse(values["WID_ID_TOKEN"])
	if err != nil || !slices.Equal(claims.Audience, []string{"https://service.example"}) || len(values) != 1 {
		t.Errorf("got %d values, and an ID token of %+v, %v; want one for https://service.example", len(values), claims, err)
	}
	if out := w.must("", append([]string{"token"}, args...)...); strings.Contains(out, "eyJ") ||
		!strings.Contains(out, "WID_ID_TOKEN") {
		t.Errorf("got %s, want WID_ID_TOKEN redacted", out)
	}
}

// The authority of another cloud, which the environment would have to name
// otherwise.
func TestAuthorityHost(t *testing.T) {
	w := newEnvironment(t)
	const tenant, us, audience = "b8e3e4f6-86f1-41af-91ab-2d7cd011db47", "login.microsoftonline.us",
		azure.DefaultAudience + "USGov"
	w.cloud.Azure().AddTenant(us, tenant)
	w.cloud.Azure().AddFederatedCredential(tenant, azureClient, cloudtest.FederatedCredential{Issuer: w.issuer.URL(),
		Subject: subjectOfApp, Audience: audience, Fetch: w.issuer.HTTPClient()})
	w.app.Annotations[azure.TenantIDAnnotation] = tenant
	args := append(w.annotationFlags("azure."), w.tokenFile(audience), "--authority-host=https://"+us)
	values, _ := w.revealed(args...)
	calls := w.cloud.Log()
	if id, _ := w.cloud.Azure().Identity(values["AZURE_ACCESS_TOKEN"]); id.Tenant != tenant ||
		calls[len(calls)-1].Host != us {
		t.Errorf("got %+v of %s, want the tenant %s of %s", id, calls[len(calls)-1].Host, tenant, us)
	}
}

// A server that wants to know its clients.
func TestClientOfAnExchange(t *testing.T) {
	w := newEnvironment(t)
	o := w.cloud.OAuth()
	o.Configure(cloudtest.OAuthConfig{RequireClient: true})
	o.SetClient(cloudtest.OAuthClient{ID: "wid", Method: "client_secret_basic", Secret: "p:w"})
	args := []string{"--provider=exchange", w.tokenFile(o.TokenEndpoint()), "--exchange-endpoint=" + o.TokenEndpoint()}
	if r := w.run("", append([]string{"token"}, args...)...); r.code == 0 ||
		!strings.Contains(r.err, "--exchange-client-id") {
		t.Errorf("without a client: got %+v, want --exchange-client-id", r)
	}
	args = append(args, "--exchange-client-id=wid", "--exchange-client-secret-file="+w.write("secret", "p:w\n"),
		"--exchange-token-type=urn:ietf:params:oauth:token-type:access_token")
	values, _ := w.revealed(args...)
	if id, _ := o.Identity(values["WID_TOKEN"]); id.Subject != subjectOfApp {
		t.Errorf("got %+v, want the subject %s", id, subjectOfApp)
	}
	w.write("secret", "another")
	if r := w.run("", append([]string{"token"}, args...)...); r.code == 0 || strings.Contains(r.err+r.stdout, "another") {
		t.Errorf("with another secret: got %+v, want an error without it", r)
	}
}

// A service that trusts the cluster's issuer, by flags alone, and with an
// annotation.
func TestServiceOfAnExchange(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[cloudtest.FederationService]struct {
		args       []string
		parameters map[string]string
		other      string // a parameter that is not the rule's
	}{
		cloudtest.FederationVault: {[]string{"--service=vault", "--service-address=https://vault.example",
			"--service-parameter=namespace=team", "--service-parameter=role=app"},
			map[string]string{"role": "app", "namespace": "team"}, "role"},
		cloudtest.FederationAnthropic: {[]string{"--provider=exchange", "--service=anthropic",
			"--service-parameter=organization_id=o", "--service-parameter=federation_rule_id=r",
			"--annotation=" + exchange.AnthropicServiceAccountAnnotation + "=svac_1"},
			map[string]string{"organization_id": "o", "federation_rule_id": "r", "service_account_id": "svac_1"},
			"service_account_id"},
	} {
		t.Run(string(name), func(t *testing.T) {
			w.t = t
			fake := w.cloud.Federation(name)
			fake.AddIssuer(w.issuer.URL(), w.issuer.HTTPClient())
			fake.AddRule(cloudtest.FederationRule{Issuer: w.issuer.URL(), Subject: subjectOfApp, Audience: "ours",
				Parameters: tc.parameters})
			args := append(tc.args, w.tokenFile("ours"), "--audience=ours")
			values, _ := w.revealed(args...)
			if id, _ := fake.Identity(values["WID_TOKEN"]); id.Subject != subjectOfApp {
				t.Errorf("got %+v, want the subject %s", id, subjectOfApp)
			}
			args = append([]string{"token"}, append(args, "--service-parameter="+tc.other+"=other")...)
			if r := w.run("", args...); r.code == 0 || !strings.Contains(r.err, string(name)+": ServiceAccount") {
				t.Errorf("with another %s: got %+v, want a refusal of %s", tc.other, r, name)
			}
		})
	}
}

// A program that the AWS configuration names is run if the caller says so.
func TestAllowShellOut(t *testing.T) {
	w := newEnvironment(t)
	id, secret := w.cloud.AWS().AddUser(account, "somebody")
	keys := w.write("keys.json", `{"Version":1,"AccessKeyId":"`+id+`","SecretAccessKey":"`+secret+`"}`)
	t.Setenv("AWS_CONFIG_FILE", w.write("config", "[default]\ncredential_process = cat "+keys+"\n"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	args := []string{"token", "--provider=aws", "--region=eu-central-1", "-o=json"}
	if r := w.run("", args...); r.code != cli.ExitMisconfigured || !strings.Contains(r.err, "--allow-shell-out") {
		t.Errorf("got %+v, want --allow-shell-out", r)
	}
	if out := w.must("", append(args, "--allow-shell-out")...); !strings.Contains(out, id) ||
		strings.Contains(out, secret) {
		t.Errorf("got %s, want the key %s without its secret", out, id)
	}
}

// The API server is asked for a token that expires earlier than others.
func TestTokenLifetime(t *testing.T) {
	w := newEnvironment(t)
	flags, _ := w.cluster(w, clientcmdapi.AuthInfo{})
	_, life := w.revealed(append([]string{"--provider=generic", "--audience=vault", "--token-lifetime=12m"},
		flags[:2]...)...)
	if life > 12*time.Minute || life < 11*time.Minute {
		t.Errorf("it lasts %s, want 12m", life)
	}
}

// Nobody gets what was made for something else.
func TestTheCacheKeepsThingsApart(t *testing.T) {
	w := newEnvironment(t)
	w.cloud.AWS().SetRole(role("other"), cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{subjectOfApp}})
	file, annotation := w.tokenFile(aws.DefaultAudience), "--annotation="+aws.RoleARNAnnotation+"="
	variants := [][]string{
		{file, annotation + role("tenant-a"), "--region=eu-central-1"},
		{file, annotation + role("tenant-a"), "--region=eu-west-1"},
		{file, annotation + role("other"), "--region=eu-central-1"},
		{file, annotation + role("tenant-a"), "--region=eu-central-1",
			"--annotation=" + aws.TokenExpirationAnnotation + "=900"},
	}
	seen := map[string]bool{}
	for range 2 {
		for _, args := range variants {
			seen[w.must("", append([]string{"credential-process"}, args...)...)] = true
		}
	}
	// The region may come from the environment, which is in the key too.
	for _, region := range []string{"us-east-1", "us-west-2"} {
		t.Setenv("AWS_REGION", region)
		seen[w.must("", append([]string{"credential-process"}, variants[0][:2]...)...)] = true
	}
	w.tokenFile(aws.DefaultAudience) // another token under the old name proves itself anew
	seen[w.must("", append([]string{"credential-process"}, variants[0]...)...)] = true
	if want := len(variants) + 3; len(seen) != want || w.mints() != want {
		t.Errorf("got %d credentials in %d exchanges, want %d", len(seen), w.mints(), want)
	}
}

// What happens to the ServiceAccount takes effect at once, although there is a
// credential on disk.
func TestTheCacheFollowsTheServiceAccount(t *testing.T) {
	w := newEnvironment(t)
	flags, _ := w.cluster(w, clientcmdapi.AuthInfo{})
	args := append([]string{"credential-process"}, flags...)
	if first := w.must("", args...); w.must("", args...) != first || w.mints() != 1 {
		t.Errorf("got %d exchanges, want 1", w.mints())
	}
	w.app.Annotations[aws.RoleARNAnnotation] = role("tenant-b")
	if r := w.run("", args...); r.code != cli.ExitDenied || r.stdout != "" {
		t.Errorf("with the role of another tenant: got %+v, want exit code %d", r, cli.ExitDenied)
	}
}

// Where nothing can be kept, people are told why every call makes an exchange:
// once, and not where programs read.
func TestCachingThatIsOff(t *testing.T) {
	w := newEnvironment(t)
	w.kept = ""
	for name, tc := range map[string]struct {
		home, cache string
		more        []string
		want        string
	}{
		"relative XDG_CACHE_HOME": {w.dir, "cache", nil, "relative"},
		"no home":                 {"", "", nil, "HOME"},
		"relative home":           {"home", "", nil, `"home/.cache" is not absolute`},
		"said so":                 {"", "", []string{"--no-cache"}, ""},
		"told where":              {"", "", []string{"--cache-dir=" + filepath.Join(w.dir, "elsewhere")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			t.Setenv("HOME", tc.home)
			t.Setenv("XDG_CACHE_HOME", tc.cache)
			before := w.mints()
			r := w.run("", append(append([]string{"credential-process"}, w.inHand()...), tc.more...)...)
			if r.code != 0 || !strings.HasPrefix(r.stdout, `{"Version":1`) || w.mints() != before+1 {
				t.Errorf("got %+v, want a credential", r)
			}
			if warned := strings.Contains(r.stderr, "--cache-dir") && strings.Contains(r.stderr, "--no-cache"); warned !=
				(tc.want != "") || !strings.Contains(r.stderr, tc.want) {
				t.Errorf("standard error is %q, want %q", r.stderr, tc.want)
			}
		})
	}
}
