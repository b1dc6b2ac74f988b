package azure_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// newClouds is an environment in which tenant-a has an identity in each cloud,
// in ServiceAccounts public, us, cn and own.
func newClouds(t testing.TB) *environment {
	t.Helper()
	var objs []client.Object
	tenants := map[string]string{"public": tenantID, "us": usTenant, "cn": cnTenant, "own": ownTenant}
	for name, tenant := range tenants {
		objs = append(objs, identity("tenant-a", name, tenant, clientA))
	}
	w := newEnvironment(t, objs...)
	w.Cloud.Azure().AddCloud(ownAuthority, ownManager, ownRegistry)
	w.Cloud.Azure().AddTenant("login.microsoftonline.us", usTenant)
	w.Cloud.Azure().AddTenant("login.chinacloudapi.cn", cnTenant)
	w.Cloud.Azure().AddTenant(ownAuthority, ownTenant)
	audiences := map[string]string{"public": azure.DefaultAudience, "us": azure.DefaultAudience + "USGov",
		"cn": azure.DefaultAudience + "China", "own": "https://" + ownAuthority}
	for name, tenant := range tenants {
		w.trustFor(audiences[name], tenant, clientA, "system:serviceaccount:tenant-a:"+name)
	}
	return w
}

func privateCloud() azure.Cloud {
	return azure.Cloud{AuthorityHost: "https://" + ownAuthority, ResourceManagerEndpoint: "https://" + ownManager + "/",
		RegistrySuffix: ownRegistry}
}

// One provider serves four clouds at once, and one cache keeps their tokens
// apart.
func TestSeveralClouds(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	p, tokens := &azure.Provider{PrivateClouds: []azure.Cloud{privateCloud()}}, testenv.Cache(t)
	for name, tc := range map[string]struct{ authority, host, audience string }{
		"public": {"", "login.microsoftonline.com", "https://management.azure.com"},
		"us": {"https://login.microsoftonline.us/", "login.microsoftonline.us",
			"https://management.core.usgovcloudapi.net"},
		"cn": {"https://login.partner.microsoftonline.cn", "login.partner.microsoftonline.cn",
			"https://management.core.chinacloudapi.cn"},
		"own": {"https://" + ownAuthority + ":443", ownAuthority, "https://" + ownManager},
	} {
		opts := w.Options("tenant-a", name, testenv.WithCache(tokens, "tenant-a"))
		if tc.authority != "" {
			opts = append(opts, azure.WithAuthorityHost(tc.authority))
		}
		token, err := get(t, p, opts...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		calls := w.Cloud.Log()
		if id := w.whose(token); id.Audience != tc.audience || calls[len(calls)-1].Host != tc.host {
			t.Errorf("%s: got %+v from %s", name, id, calls[len(calls)-1].Host)
		}
	}
	// The same ServiceAccount at another authority is another entry of the
	// cache.
	_,
		err := get(t, p, w.Options("tenant-a", "public", testenv.WithCache(tokens, "tenant-a"),
		azure.WithAuthorityHost("https://login.microsoftonline.us"))...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "AADSTS90002", "authority host")
	token, err := get(t, p, w.Options("tenant-a", "us", auth.WithSTSEndpoint("https://login.microsoftonline.us"))...)
	if err != nil || w.whose(token).Tenant != usTenant {
		t.Errorf("WithSTSEndpoint: %v", err)
	}
}

// The two options may name the same authority, however it is written.
func TestTwoOptionsForOneAuthority(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	for endpoint, ok := range map[string]bool{"https://login.microsoftonline.us": true,
		"https://login.microsoftonline.us/": true, "https://LOGIN.microsoftonline.us:443": true,
		"https://login.microsoftonline.com": false, "http://login.microsoftonline.us": false,
		"https://login.microsoftonline.us:8443": false} {
		_, err := get(t, &azure.Provider{},
			w.Options("tenant-a", "us", azure.WithAuthorityHost("https://login.microsoftonline.us"),
				auth.WithSTSEndpoint(endpoint))...)
		if ok && err != nil {
			t.Error(err)
		}
		if !ok {
			testenv.CheckError(t, err, auth.ErrMisconfigured, "different authorities")
		}
	}
}

// The setting of the provider comes before the environment's, the object's
// before both.
func TestPrecedenceOfAuthorities(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	t.Setenv("AZURE_AUTHORITY_HOST", "https://login.chinacloudapi.cn/")
	if _, err := get(t, &azure.Provider{}, w.Options("tenant-a", "cn")...); err != nil {
		t.Error(err)
	}
	p := &azure.Provider{AuthorityHost: "https://login.microsoftonline.us"}
	if _, err := get(t, p, w.Options("tenant-a", "us")...); err != nil {
		t.Error(err)
	}
	if _,
		err := get(t, p,
		w.Options("tenant-a", "public", azure.WithAuthorityHost("https://login.microsoftonline.com"))...); err != nil {
		t.Error(err)
	}
	t.Setenv("AZURE_AUTHORITY_HOST", "http://login.chinacloudapi.cn/")
	_, err := get(t, &azure.Provider{}, w.Options("tenant-a", "cn")...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `"http://login.chinacloudapi.cn/"`, "https://")
	t.Setenv("AZURE_AUTHORITY_HOST", "https://"+ownAuthority)
	if _, err := get(t, &azure.Provider{},
		w.Options("tenant-a", "own", auth.WithScopes("https://storage.azure.com/.default"))...); err != nil {
		t.Errorf("an unknown authority of the controller: %v", err)
	}
	_, err = get(t, &azure.Provider{}, w.Options("tenant-a", "own")...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "WithScopes", "PrivateClouds")
}

func TestEnvironmentFile(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	file := testenv.WriteFile(t,
		`{"name":"AzureStackCloud","activeDirectoryEndpoint":"https://`+ownAuthority+
			`/","resourceManagerEndpoint":"https://`+ownManager+
			`/","tokenAudience":"https://`+ownManager+`","containerRegistryDNSSuffix":"`+ownRegistry+`"}`)
	t.Setenv("AZURE_ENVIRONMENT_FILEPATH", file)
	p := &azure.Provider{}
	token, err := get(t, p, w.Options("tenant-a", "own")...)
	if err != nil || w.whose(token).Audience != "https://"+ownManager {
		t.Fatalf("got %v, %v, want a token for https://%s", token, err, ownManager)
	}
	if err := os.WriteFile(file, []byte("gone"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, p, w.Options("tenant-a", "own")...); err != nil {
		t.Errorf("the file was read again: %v", err)
	}
	if _, err := p.ParseArtifactRepository("example."+ownRegistry+"/app", &provider.Options{}); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"no JSON": "gone",
		"list":    "[]",
		"empty":   "",
		"http":    `{"activeDirectoryEndpoint":"http://x.example"}`,
		"ADFS":    `{"activeDirectoryEndpoint":"https://x.example/adfs/"}`,
		"suffix":  `{"activeDirectoryEndpoint":"https://x.example","containerRegistryDNSSuffix":"com"}`,
		"manager": `{"activeDirectoryEndpoint":"https://x.example","resourceManagerEndpoint":"https://u@y.example"}`,
	} {
		t.Setenv("AZURE_ENVIRONMENT_FILEPATH", testenv.WriteFile(t, text))
		_, err := get(t, &azure.Provider{}, w.Options("tenant-a", "own")...)
		if testenv.CheckError(t, err, auth.ErrMisconfigured, "AZURE_ENVIRONMENT_FILEPATH"); t.Failed() {
			t.Fatal(name)
		}
	}
	t.Setenv("AZURE_AUTHORITY_HOST", "https://"+ownAuthority)
	t.Setenv("AZURE_ENVIRONMENT_FILEPATH", testenv.WriteFile(t, `{"resourceManagerEndpoint":"https://`+ownManager+`"}`))
	if _, err := get(t, &azure.Provider{}, w.Options("tenant-a", "own")...); err != nil {
		t.Errorf("the authority of the environment: %v", err)
	}
	t.Setenv("AZURE_ENVIRONMENT_FILEPATH", filepath.Join(t.TempDir(), "nothing"))
	_, err = get(t, &azure.Provider{}, w.Options("tenant-a", "own")...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "nothing")
}

// An environment file describes what differs from Microsoft's cloud. Its
// authority defaults to the public one.
func TestEnvironmentFileWithPublicAuthority(t *testing.T) {
	clearEnvironment(t)
	for name, authority := range map[string]string{"left out": "",
		"named": `"activeDirectoryEndpoint":"https://login.microsoftonline.com/",`} {
		t.Run(name, func(t *testing.T) {
			w := newClouds(t)
			content := `{` + authority + `"resourceManagerEndpoint":"https://` + ownManager + `","tokenAudience":"https://` +
				ownManager + `","containerRegistryDNSSuffix":"` + ownRegistry + `"}`
			t.Setenv("AZURE_ENVIRONMENT_FILEPATH", testenv.WriteFile(t, content))
			p := &azure.Provider{}
			if url, err := p.TokenServiceURL(&provider.Options{}); err != nil || url != "https://login.microsoftonline.com" {
				t.Errorf("the authority is %q, %v", url, err)
			}
			for registry, audience := range map[string]string{"tenanta.azurecr.io": azurename.RegistryAudience,
				"example." + ownRegistry: "https://" + ownManager} {
				if _, err := p.ParseArtifactRepository(registry+"/app", &provider.Options{}); err != nil {
					t.Errorf("registry %s: %v", registry, err)
				}
				if scopes := registryScopes(t, p, registry); !slices.Equal(scopes, []string{audience + "/.default"}) {
					t.Errorf("registry %s: scopes %q", registry, scopes)
				}
			}
			if _, err := auth.GetGitCredentials(t.Context(), p,
				w.Options("tenant-a", "public", auth.WithGitURL(parseURL(t, "https://dev.azure.com/o/p/_git/r")))...); err != nil {
				t.Errorf("Azure DevOps: %v", err)
			}
		})
	}
}

// A file that names nothing but its registries leaves the rest of Microsoft's
// cloud as it is.
func TestEnvironmentFileKeepsMicrosoftsResourceManager(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	t.Setenv("AZURE_ENVIRONMENT_FILEPATH", testenv.WriteFile(t, `{"containerRegistryDNSSuffix":"`+ownRegistry+`"}`))
	token, err := get(t, &azure.Provider{}, w.Options("tenant-a", "public")...)
	if err != nil || w.whose(token).Audience != "https://management.azure.com" {
		t.Errorf("got %v, %v", token, err)
	}
}

func registryScopes(t *testing.T, p *azure.Provider, host string) []string {
	t.Helper()
	list, err := p.GetAccessTokenOptionsForArtifactRepository(host, &provider.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var opts provider.Options
	for _, opt := range list {
		opt(&opts)
	}
	return opts.Scopes
}

// Entra ID compares audiences byte by byte. The scope of "https://arm.example/"
// is "https://arm.example//.default".
func TestTokenAudienceKeepsItsTrailingSlash(t *testing.T) {
	clearEnvironment(t)
	for audience, want := range map[string]string{"https://" + ownManager: "https://" + ownManager + "/.default",
		"https://" + ownManager + "/": "https://" + ownManager + "//.default"} {
		t.Run(audience, func(t *testing.T) {
			w, cloud := newClouds(t), privateCloud()
			cloud.ResourceManagerAudience = audience
			_, _ = get(t, &azure.Provider{PrivateClouds: []azure.Cloud{cloud}},
				w.Options("tenant-a", "own", azure.WithAuthorityHost("https://"+ownAuthority))...)
			if calls := w.Cloud.Log(); len(calls) == 0 || calls[0].Parameters["scope"] != want {
				t.Errorf("the scope is not %q: %+v", want, calls)
			}
		})
	}
}

// The token of a ServiceAccount goes to no host that only looks like an
// authority.
func TestAuthoritiesThatAreRefused(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	for _, authority := range []string{
		"https://evil.example", "https://login.microsoftonline.com.evil.example", "https://evillogin.microsoftonline.com",
		"https://login.microsoftonline.com@evil.example", "https://evil.example/login.microsoftonline.com",
		"https://evil.example#login.microsoftonline.com",
		"https://evil.example?login.microsoftonline.com", "https://login.microsoftonline.com:8443",
		"https://login.microsoftonline.com:", "http://login.microsoftonline.com",
		"https:login.microsoftonline.com", "//login.microsoftonline.com", "login.microsoftonline.com",
		"https://login.microsoftonline.com/tenant",
		"https://login.microsoftonline.com.", "https://login.microsoftonline.com//",
		"https://login.microsoftonline.com\\@evil.example", "https://login.microsoftonline.com%2eevil.example",
		"https://", "https:///", " https://login.microsoftonline.com", "https://login.microsoftonline.com\n",
		"https://login。microsoftonline.com", "https://[::1]",
		"https://login.microsoftonline.de", "https://" + ownAuthority,
	} {
		_, err := w.get(t, "tenant-a", "public", azure.WithAuthorityHost(authority))
		testenv.CheckError(t, err, auth.ErrMisconfigured, "refused")
		_, err = w.get(t, "tenant-a", "public", auth.WithSTSEndpoint(authority))
		testenv.CheckError(t, err, auth.ErrMisconfigured, "refused")
	}
	_, err := get(t, &azure.Provider{PrivateClouds: []azure.Cloud{{AuthorityHost: "x"}}},
		w.Options("tenant-a", "public")...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "PrivateClouds")
	testenv.ExpectNone(t, w.Requests())
	if _, err := w.get(t, "tenant-a", "public",
		azure.WithAuthorityHost("https://LOGIN.Microsoftonline.com/")); err != nil {
		t.Error(err)
	}
}

// An object cannot have the controller's own secret sent to the authority of
// another cloud. The controller itself can.
func TestOwnIdentityIsNotSentToAnotherAuthorityForObjects(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	const secret = "abc8Q~the-secret-of-the-application"
	w.Cloud.Azure().SetClientSecret(tenantID, clientB, secret)
	configure(t, tenantID, clientB, "AZURE_CLIENT_SECRET", secret)
	p := &azure.Provider{PrivateClouds: []azure.Cloud{privateCloud()}}
	forObject := testenv.Owner("tenant-b")
	for _, host := range []string{ownAuthority, "login.chinacloudapi.cn"} {
		for _, option := range []auth.Option{auth.WithSTSEndpoint("https://" + host),
			azure.WithAuthorityHost("https://" + host)} {
			_, err := w.controller(t, p, forObject, option)
			testenv.CheckError(t, err, auth.ErrDenied, "own identity", host, "name a ServiceAccount")
		}
	}
	testenv.ExpectNone(t, w.Cloud.Calls("", ""))
	if _, err := w.controller(t, p, forObject, auth.WithSTSEndpoint("https://login.microsoftonline.com")); err != nil {
		t.Errorf("the controller's own authority: %v", err)
	}
	w.Cloud.Azure().SetClientSecret(ownTenant, clientB, secret)
	t.Setenv("AZURE_TENANT_ID", ownTenant)
	if _, err := w.controller(t, p, auth.WithSTSEndpoint("https://"+ownAuthority)); err != nil {
		t.Errorf("the controller for itself: %v", err)
	}
}

// The operator of a cloud cannot use a ServiceAccount's token at another one.
func TestEachCloudHasAnAudienceOfItsOwn(t *testing.T) {
	clearEnvironment(t)
	const own, public, entra = "https://" + ownAuthority, "https://login.microsoftonline.com", azure.DefaultAudience
	private, listed := []azure.Cloud{privateCloud()}, []azure.Cloud{{AuthorityHost: public}}
	file := testenv.WriteFile(t, `{"activeDirectoryEndpoint":"`+own+`"}`)
	for name, tc := range map[string]struct {
		clouds          []azure.Cloud
		ours, audience  string // AuthorityHost and Audience of the provider
		file, authority string // AZURE_ENVIRONMENT_FILEPATH, and the call's
		want            string
	}{
		"public":                   {want: entra},
		"public, named":            {clouds: private, authority: public, want: entra},
		"public, an alias":         {authority: "https://LOGIN.windows.net:443/", want: entra},
		"US Government":            {authority: "https://login.microsoftonline.us", want: entra + "USGov"},
		"China":                    {authority: "https://login.partner.microsoftonline.cn", want: entra + "China"},
		"China, of the provider":   {ours: "https://login.chinacloudapi.cn", want: entra + "China"},
		"private":                  {clouds: private, authority: own, want: own},
		"private, of the provider": {clouds: private, ours: own, want: own},
		"private, set": {clouds: []azure.Cloud{{AuthorityHost: own + ":8443", Audience: "api://contoso"}},
			authority: own + ":8443", want: "api://contoso"},
		"private, the provider's audience": {clouds: private, audience: "api://x", authority: own, want: own},
		"public, the provider's audience":  {clouds: private, audience: "api://x", authority: public, want: "api://x"},
		"public, not the provider's": {clouds: private, ours: own, audience: "api://x", authority: public,
			want: entra},
		"a genuine host that is listed":      {clouds: listed, authority: public, want: entra},
		"of a file":                          {file: file, want: own},
		"of a file, the provider's audience": {audience: "api://x", file: file, want: "api://x"},
		"public beside a file":               {audience: "api://x", file: file, authority: public, want: entra},
		"an unknown authority":               {ours: own, want: own},
		"an unknown authority, a port":       {ours: own + ":8443", want: own + ":8443"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AZURE_ENVIRONMENT_FILEPATH", tc.file)
			p := &azure.Provider{PrivateClouds: tc.clouds, AuthorityHost: tc.ours, Audience: tc.audience}
			audiences, err := p.GetAudiences(t.Context(), nil, &provider.Options{STSEndpoint: tc.authority})
			if err != nil || !slices.Equal(audiences, []string{tc.want}) {
				t.Errorf("the audiences are %q, %v; want %q", audiences, err, tc.want)
			}
		})
	}
}

// A registry outside Azure receives no token that Azure's registries accept.
func TestRegistriesWithAnAuthorityOfMicrosofts(t *testing.T) {
	clearEnvironment(t)
	cloud := azure.Cloud{AuthorityHost: "https://login.microsoftonline.com", RegistrySuffix: ownRegistry}
	p := &azure.Provider{PrivateClouds: []azure.Cloud{cloud}}
	_, err := p.GetAccessTokenOptionsForArtifactRepository("example."+ownRegistry, &provider.Options{})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "login.microsoftonline.com", "ResourceManagerAudience",
		"PrivateClouds")
	want := []string{azurename.RegistryAudience + "/.default"}
	if got := registryScopes(t, p, "example.azurecr.io"); !slices.Equal(got, want) {
		t.Errorf("a registry of Azure: scopes %q", got)
	}
	cloud.ResourceManagerAudience = "api://contoso"
	p = &azure.Provider{PrivateClouds: []azure.Cloud{cloud}}
	if got := registryScopes(t, p, "example."+ownRegistry); !slices.Equal(got, []string{"api://contoso/.default"}) {
		t.Errorf("with an audience: scopes %q", got)
	}
}

// The remedy names the audience of the token and the options that set it.
func TestAudienceThatIsNotTrusted(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	w.Cloud.Azure().RemoveFederatedCredentials(usTenant, clientA)
	w.trustFor(azure.DefaultAudience, usTenant, clientA, "system:serviceaccount:tenant-a:us")
	us := azure.WithAuthorityHost("https://login.microsoftonline.us")
	_, err := w.get(t, "tenant-a", "us", us)
	testenv.CheckError(t, err, auth.ErrDenied, "AADSTS700212", `to "api://AzureADTokenExchangeUSGov"`,
		"auth.WithAudiences", "azure.Provider.Audience")
	allowed := auth.WithPolicy(auth.Policy{Audiences: []string{azure.DefaultAudience, "api://other"}})
	if _, err := w.get(t, "tenant-a", "us", us, allowed, auth.WithAudiences(azure.DefaultAudience)); err != nil {
		t.Error(err)
	}
	_, err = w.get(t, "tenant-a", "us", us, allowed, auth.WithAudiences("api://other"))
	testenv.CheckError(t, err, auth.ErrDenied, `to "api://other"`)
}
