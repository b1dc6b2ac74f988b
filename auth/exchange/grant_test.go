package exchange_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Each grant presents the ServiceAccount's token in its own parameter.
func TestGrants(t *testing.T) {
	for name, change := range map[string]func(*environment, *exchange.Provider) *exchange.Provider{
		"jwt-bearer": func(_ *environment, p *exchange.Provider) *exchange.Provider {
			p.Grant = exchange.GrantJWTBearer
			return p
		},
		"jwt-bearer with a client": func(w *environment, p *exchange.Provider) *exchange.Provider {
			w.oauth.SetClient(cloudtest.OAuthClient{ID: "c", Method: "client_secret_basic", Secret: secret})
			p.Grant, p.Client = exchange.GrantJWTBearer, exchange.ClientSecretBasic("c", secretOf(secret))
			return p
		},
		"client_credentials": func(_ *environment, p *exchange.Provider) *exchange.Provider {
			p.Grant = exchange.GrantClientCredentials
			return p
		},
		"keycloak": func(w *environment, _ *exchange.Provider) *exchange.Provider {
			return exchange.NewKeycloak(w.oauth.URL())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			p := change(w, &exchange.Provider{Endpoint: w.oauth.TokenEndpoint(), Audience: "api"})
			token, err := w.get(t, p, auth.WithScopes("read"))
			if err != nil {
				t.Fatal(err)
			}
			if id := w.identity(t, token); id.Subject != subject("tenant-a") || id.Audience != p.Audience ||
				len(id.Scopes) != 1 {
				t.Errorf("got %+v", id)
			}
			_, err = w.getFor(t.Context(), p, "tenant-b")
			testenv.CheckError(t, err, auth.ErrDenied, `subject "`+subject("tenant-b")+`"`)
		})
	}
}

func TestParametersAreSent(t *testing.T) {
	w := newEnvironment(t)
	p := w.provider()
	p.Parameters = map[string]string{"pool": "one"}
	p.AnnotatedParameters = map[string]string{"account": "example.com/account"}
	if _, err := w.get(t, p, auth.WithAnnotations(map[string]string{"example.com/account": "a-1"})); err != nil {
		t.Fatal(err)
	}
	log := w.Cloud.Log()
	if sent := log[len(log)-1].Parameters; sent["pool"] != "one" || sent["account"] != "a-1" {
		t.Errorf("sent %v", sent)
	}
	p = w.provider()
	p.TokenFile, p.AnnotatedParameters = w.writeToken(t, w.oauth.TokenEndpoint()),
		map[string]string{"account": "example.com/account"}
	_, err := auth.GetAccessToken(t.Context(), p, auth.WithHTTPClient(w.Cloud.Client()))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "comes from an annotation of a ServiceAccount")
}

// Fields that a form cannot send, and what would replace another field, are
// refused by name.
func TestFormsThatAreRefused(t *testing.T) {
	type change = func(*exchange.Provider)
	parameter := func(name, value string) change {
		return func(p *exchange.Provider) { p.Parameters = map[string]string{name: value} }
	}
	header := func(name, value string) change {
		return func(p *exchange.Provider) { p.Headers = map[string]string{name: value} }
	}
	annotated := func(list map[string]string) change {
		return func(p *exchange.Provider) { p.AnnotatedParameters = list }
	}
	client := func(p *exchange.Provider) { p.Client = exchange.PublicClient("c") }
	actor := func(p *exchange.Provider) { p.ActorToken = auth.NewFileTokenSource("x") }
	requested := func(p *exchange.Provider) { p.RequestedTokenType = exchange.TokenTypeJWT }
	subjectType := func(p *exchange.Provider) { p.SubjectTokenType = exchange.TokenTypeJWT }
	grant := func(g exchange.Grant) change { return func(p *exchange.Provider) { p.Grant = g } }
	vault := func(address, audience string) *exchange.Provider {
		return exchange.NewVault(exchange.VaultServer{Address: address, KubernetesAudience: audience})
	}
	for name, tc := range map[string]struct {
		of      *exchange.Provider // nil: a plain server
		changes []change
		want    string
	}{
		"unknown grant":  {nil, []change{grant("password")}, `"password" is not a grant`},
		"actor":          {nil, []change{grant(exchange.GrantJWTBearer), actor}, "Provider.ActorToken"},
		"requested type": {nil, []change{grant(exchange.GrantJWTBearer), requested}, "Provider.RequestedTokenType"},
		"subject type": {nil, []change{grant(exchange.GrantClientCredentials), subjectType},
			"Provider.SubjectTokenType"},
		"second client":    {nil, []change{grant(exchange.GrantClientCredentials), client}, "Provider.Client"},
		"grant_type":       {nil, []change{parameter("grant_type", "x")}, `"grant_type" is reserved`},
		"subject_token":    {nil, []change{parameter("subject_token", "x")}, `"subject_token" is reserved`},
		"actor_token_type": {nil, []change{parameter("actor_token_type", "x")}, `"actor_token_type" is reserved`},
		"client_assertion": {nil, []change{parameter("client_assertion_type", "x")}, `"client_assertion_type" is reserved`},
		"scope":            {nil, []change{parameter("scope", "x")}, `"scope" is reserved`},
		"annotated scope":  {nil, []change{annotated(map[string]string{"scope": "x"})}, `"scope" is reserved`},
		"a blank":          {nil, []change{parameter("a b", "x")}, `"a b" is reserved or malformed`},
		"client_id":        {nil, []change{parameter("client_id", "x"), client}, `"client_id" is reserved`},
		"empty value":      {nil, []change{parameter("pool", "")}, `"pool" is empty`},
		"fixed, annotated": {nil, []change{parameter("pool", "x"), annotated(map[string]string{"pool": "a"})},
			"fixed and annotated"},
		"Authorization":     {nil, []change{header("authorization", "x")}, `"authorization" is reserved`},
		"header of a line":  {nil, []change{header("X-A", "a\r\nB: c")}, `"X-A" is reserved or malformed`},
		"name of a header":  {nil, []change{header("X A", "a")}, `"X A" is reserved or malformed`},
		"vault, audience":   {vault("https://vault.example", ""), nil, "KubernetesAudience"},
		"vault, http":       {vault("http://vault.example", "a"), nil, "https://"},
		"tailscale, extra":  {exchange.NewTailscale(), []change{parameter("role", "x")}, `no parameter "role"`},
		"tailscale, client": {exchange.NewTailscale(), []change{client}, "Provider.Client"},
		"tailscale, none":   {exchange.NewTailscale(), []change{annotated(nil)}, `needs the parameter "client_id"`},
		"anthropic, none":   {exchange.NewAnthropic("", "rule", "a"), nil, `"organization_id" is empty`},
		"docker hub, none":  {exchange.NewDockerHub(""), nil, `"" is not an organization`},
		"docker hub, colon": {exchange.NewDockerHub("org:x"), nil, `"org:x" is not an organization`},
		"service's header": {exchange.NewAnthropic("org", "rule", "a"), []change{header("anthropic-beta", "x")},
			`"anthropic-beta" is reserved`},
		"vault, namespace": {exchange.NewVault(exchange.VaultServer{Address: "https://vault.example", Namespace: "a\nb",
			KubernetesAudience: "a"}), nil, `"X-Vault-Namespace"`},
		"quay, host":      {exchange.NewQuay("quay.io@evil.example"), nil, "user name"},
		"databricks, URL": {exchange.NewDatabricks("https://dbc-1.example/#", "a"), nil, "fragment"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			p := tc.of
			if p == nil {
				p = w.provider()
			}
			for _, change := range tc.changes {
				change(p)
			}
			_, err := w.get(t, p)
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
			testenv.ExpectNone(t, w.Requests())
		})
	}
	t.Run("scopes of a service without any", func(t *testing.T) {
		f := newFederation(t, cloudtest.FederationVault)
		_, err := f.get(t, f.provider, auth.WithScopes("read"))
		testenv.CheckError(t, err, auth.ErrMisconfigured, "takes no scopes")
	})
	t.Run("another audience of a tenant's", func(t *testing.T) {
		f := newFederation(t, cloudtest.FederationOpenAI)
		_, err := f.get(t, f.provider, exchange.WithAudience("other"))
		testenv.CheckError(t, err, auth.ErrDenied, `"other"`)
	})
}

// A service whose form is its own refuses each field that it cannot send, and
// each grant those of RFC 8693.
func TestFieldsWithoutUseAreRefused(t *testing.T) {
	type change = func(*exchange.Provider)
	rfc8693 := map[string]change{
		"ActorToken":         func(p *exchange.Provider) { p.ActorToken = auth.NewFileTokenSource("x") },
		"ActorTokenType":     func(p *exchange.Provider) { p.ActorTokenType = exchange.TokenTypeJWT },
		"SubjectTokenType":   func(p *exchange.Provider) { p.SubjectTokenType = exchange.TokenTypeJWT },
		"RequestedTokenType": func(p *exchange.Provider) { p.RequestedTokenType = exchange.TokenTypeJWT },
	}
	client := map[string]change{
		"Client":         func(p *exchange.Provider) { p.Client = exchange.PublicClient("c") },
		"ClientAudience": func(p *exchange.Provider) { p.ClientAudience = "c" },
	}
	oauth := map[string]change{
		"Grant":            func(p *exchange.Provider) { p.Grant = exchange.GrantJWTBearer },
		"JSONBody":         func(p *exchange.Provider) { p.JSONBody = true },
		"DefaultScopes":    func(p *exchange.Provider) { p.DefaultScopes = []string{"read"} },
		"Audience":         func(p *exchange.Provider) { p.Audience = "api" },
		"AllowedAudiences": func(p *exchange.Provider) { p.AllowedAudiences = []string{"api"} },
		"Resource":         func(p *exchange.Provider) { p.Resource = "https://api.example" },
		"AllowedResources": func(p *exchange.Provider) { p.AllowedResources = []string{"https://api.example"} },
		"IssuerURL":        func(p *exchange.Provider) { p.Endpoint, p.IssuerURL = "", "https://issuer.example" },
		"AllowedEndpointHosts": func(p *exchange.Provider) {
			p.AllowedEndpointHosts = []string{"login.example"}
		},
	}
	bearer := map[string]change{"AssumeBearer": func(p *exchange.Provider) { p.AssumeBearer = true }}
	services := services()
	grant := func(g exchange.Grant) func() *exchange.Provider {
		return func() *exchange.Provider {
			return &exchange.Provider{Endpoint: "https://login.example/token", Grant: g}
		}
	}
	for name, tc := range map[string]struct {
		of     func() *exchange.Provider
		refuse []map[string]change
	}{
		"jwt-bearer":         {grant(exchange.GrantJWTBearer), []map[string]change{rfc8693}},
		"client_credentials": {grant(exchange.GrantClientCredentials), []map[string]change{rfc8693, client}},
		"tailscale":          {services[cloudtest.FederationTailscale].make, []map[string]change{rfc8693, client, oauth}},
		"vault":              {services[cloudtest.FederationVault].make, []map[string]change{rfc8693, client, oauth, bearer}},
		"octo-sts": {services[cloudtest.FederationOctoSTS].make,
			[]map[string]change{rfc8693, client, oauth, bearer}},
		"quay": {services[cloudtest.FederationQuay].make, []map[string]change{rfc8693, client, oauth, bearer}},
	} {
		for _, fields := range tc.refuse {
			for field, set := range fields {
				t.Run(name+"/"+field, func(t *testing.T) {
					p := tc.of()
					set(p)
					_, err := p.GetAudiences(t.Context(), testenv.ServiceAccount("tenant-a", "app"), nil)
					testenv.CheckError(t, err, auth.ErrMisconfigured, "Provider."+field+" cannot be sent")
				})
			}
		}
	}
}

func FuzzAnnotatedParameter(f *testing.F) {
	for _, seed := range []string{"svac_1", "a&b=c", "", "ä", strings.Repeat("x", 257), "org+robot:x"} {
		f.Add(seed)
	}
	p := exchange.NewOctoSTS("octo-sts.dev")
	f.Fuzz(func(t *testing.T, value string) {
		sa := testenv.ServiceAccount("tenant-a", "app")
		sa.Annotations = map[string]string{exchange.OctoSTSScopeAnnotation: value, exchange.OctoSTSIdentityAnnotation: "x"}
		identity, err := p.GetIdentity(sa, nil)
		if err == nil && (identity != "identity=x,scope="+value || strings.ContainsAny(value, " &=,?#%\"\\\n")) {
			t.Errorf("%q makes %q", value, identity)
		}
	})
}
