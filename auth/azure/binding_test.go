package azure_test

import (
	"context"
	"errors"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	subjectA = "system:serviceaccount:tenant-a:app"
	subjectB = "system:serviceaccount:tenant-b:app"
)

// boundEnvironment is an environment with identity bindings instead of
// federated credentials, and with the environment of a pod in AKS.
type boundEnvironment struct {
	*environment
	proxy *cloudtest.AKSTokenProxy
}

func newBoundEnvironment(t *testing.T, more ...client.Object) *boundEnvironment {
	t.Helper()
	clearEnvironment(t)
	w := newEnvironment(t, more...)
	w.Cloud.Azure().RemoveFederatedCredentials(tenantID, clientA)
	w.Cloud.Azure().RemoveFederatedCredentials(tenantID, clientB)
	proxy, err := w.Cloud.Azure().NewTokenProxy(w.Issuer.URL(), w.Issuer.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}
	proxy.SetRight(tenantID, clientA, subjectA)
	proxy.SetRight(tenantID, clientB, subjectB)
	for name, value := range proxy.Env() {
		t.Setenv(name, value)
	}
	return &boundEnvironment{w, proxy}
}

func bound() *azure.Provider { return &azure.Provider{IdentityBindings: true} }

// options are those of the environment without its client, which goes to
// Microsoft Entra ID.
func (w *boundEnvironment) options(namespace string, more ...auth.Option) []auth.Option {
	sa := client.ObjectKey{Namespace: namespace, Name: "app"}
	return append([]auth.Option{auth.WithServiceAccount(sa, w.Client), testenv.Owner(namespace)}, more...)
}

// get returns the identity behind the token of a tenant.
func (w *boundEnvironment) get(ctx context.Context, p *azure.Provider, namespace string, more ...auth.Option) (
	cloudtest.AzureIdentity, error) {
	return w.identity(auth.GetAccessToken(ctx, p, w.options(namespace, more...)...))
}

func (w *boundEnvironment) identity(token auth.Token, err error) (cloudtest.AzureIdentity, error) {
	if err != nil {
		return cloudtest.AzureIdentity{}, err
	}
	own, err := azure.FromToken(token)
	if err != nil {
		return cloudtest.AzureIdentity{}, err
	}
	return w.whose(own), nil
}

// traced counts the connections that calls open.
func traced(ctx context.Context, opened *int) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if !info.Reused {
			*opened++
		}
	}})
}

func TestIdentityBindings(t *testing.T) {
	w := newBoundEnvironment(t)
	p, opened := bound(), 0
	for range 2 {
		for namespace, clientID := range map[string]string{"tenant-a": clientA, "tenant-b": clientB} {
			id, err := w.get(traced(t.Context(), &opened), p, namespace)
			if err != nil {
				t.Fatal(err)
			}
			subject := "system:serviceaccount:" + namespace + ":app"
			if id.ClientID != clientID || id.Subject != subject || id.Audience != "https://management.azure.com" {
				t.Errorf("%s got a token of %+v", namespace, id)
			}
		}
	}
	if w.Cloud.Calls("aks-token-proxy", "token") != 4 || w.Cloud.Calls("", "") != 4 || opened != 1 {
		t.Errorf("%d connections for the calls %+v", opened, w.Cloud.Log())
	}
	call := w.Cloud.Log()[0]
	if call.Host != "login.microsoftonline.com" || call.Parameters["grant_type"] != "client_credentials" {
		t.Errorf("the request is not the usual one: %+v", call)
	}
	address, err := p.TokenServiceURL(&provider.Options{})
	if err != nil || address != os.Getenv("AZURE_KUBERNETES_TOKEN_PROXY") {
		t.Errorf("TokenServiceURL: %q, %v", address, err)
	}
}

func TestIdentityBindingsConformance(t *testing.T) {
	w := newBoundEnvironment(t, identity("tenant-b", "thief", tenantID, clientA),
		identity("tenant-a", "bad", tenantID, "app"))
	w.proxy.SetRight(tenantID, clientB, subjectA, subjectB)
	h := w.harness(bound)
	// IdentityBindings excludes Audience. TestIdentityBindingsInTheCacheKey
	// turns it off.
	h.Fields = map[string]any{"AuthorityHost": "https://login.microsoftonline.us", "PrivateClouds": nil, "Audience": nil,
		"IdentityBindings": nil}
	authtest.RunConformance(t, h)
}

// A tenant cannot use an identity that the cluster does not grant to its
// ServiceAccount, and learns what is missing.
func TestIdentityBindingsNeedARight(t *testing.T) {
	w := newBoundEnvironment(t)
	w.proxy.SetRight(tenantID, clientA, subjectB)
	_, err := w.get(t.Context(), bound(), "tenant-a")
	testenv.CheckError(t, err, auth.ErrDenied, "HTTP 403", `the ServiceAccount "tenant-a/app"`, "ClusterRole",
		"use-managed-identity", "cid.wi.aks.azure.com", `the resource "`+clientA+`"`)
	w.proxy.SetRight(tenantID, clientA, subjectA)
	if _, err := w.get(t.Context(), bound(), "tenant-a"); err != nil {
		t.Errorf("the refusal is remembered: %v", err)
	}
	other, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://another-cluster.example"})
	if err != nil {
		t.Fatal(err)
	}
	sa := identity("tenant-a", "app", tenantID, clientA)
	_, err = auth.GetAccessToken(t.Context(), bound(), testenv.Owner("tenant-a"),
		auth.WithServiceAccount(client.ObjectKeyFromObject(sa), other.Client(sa)))
	testenv.CheckError(t, err, auth.ErrDenied, "HTTP 401", "cluster of the token proxy", azure.IdentityBindingAudience)
	w.Cloud.AddFault(cloudtest.Fault{Status: 401, Code: "invalid_client",
		Message: "AADSTS70025: no federated credential."})
	_, err = w.get(t.Context(), bound(), "tenant-a")
	testenv.CheckError(t, err, auth.ErrDenied, "AADSTS70025", "identity binding", clientA)
}

// tokenFile writes the token that AKS mounts into a pod with identity bindings.
func (w *boundEnvironment) tokenFile(t *testing.T) {
	t.Helper()
	configure(t, tenantID, clientA, "AZURE_FEDERATED_TOKEN_FILE", w.mountToken(t, azure.IdentityBindingAudience))
}

// The controller's own workload identity takes the same way. Its other sources
// do not.
func TestIdentityBindingsOfTheController(t *testing.T) {
	w := newBoundEnvironment(t)
	w.tokenFile(t)
	w.Cloud.Azure().SetManagedIdentity(tenantID, clientB)
	controller := func(p *azure.Provider, more ...auth.Option) (cloudtest.AzureIdentity, error) {
		return w.identity(auth.GetAccessToken(t.Context(), p, more...))
	}
	id, err := controller(bound())
	if err != nil || id.ClientID != clientA || id.Subject != subjectA {
		t.Fatalf("got a token of %+v, %v, want one of %q", id, err, clientA)
	}
	for _, call := range w.Cloud.Log() {
		if call.Service != "aks-token-proxy" || call.Host != "login.microsoftonline.com" {
			t.Errorf("call: %+v", call)
		}
	}
	w.proxy.SetRight(tenantID, clientA)
	_, err = controller(bound())
	testenv.CheckError(t, err, auth.ErrDenied, "workload identity", "HTTP 403", "the controller's own ServiceAccount",
		"ClusterRole", clientA)
	t.Setenv("AZURE_KUBERNETES_CA_DATA", string(w.Cloud.CA()))
	_, err = controller(bound())
	testenv.CheckError(t, err, auth.ErrUnavailable, "find own Azure credentials", "x509")
	// Without the field the variables are ignored, as by azidentity without
	// EnableAzureProxy.
	w.trust(tenantID, clientA, "tenant-a")
	_, err = controller(&azure.Provider{}, auth.WithHTTPClient(w.http))
	testenv.CheckError(t, err, auth.ErrDenied, "AADSTS700212")
	if w.Cloud.Calls("imds", "") != 0 {
		t.Error("the managed identity took the place of an identity that was refused")
	}
}

// Nothing that excludes the token proxy is passed over in silence. A secret in
// an address does not show.
func TestIdentityBindingsThatAreMisconfigured(t *testing.T) {
	w := newBoundEnvironment(t)
	const (
		proxy  = "AZURE_KUBERNETES_TOKEN_PROXY"
		name   = "AZURE_KUBERNETES_SNI_NAME"
		caFile = "AZURE_KUBERNETES_CA_FILE"
		caData = "AZURE_KUBERNETES_CA_DATA"
	)
	type env = map[string]string
	elsewhere := auth.WithProxyURL(url.URL{Scheme: "http", Host: "proxy.example"})
	for what, tc := range map[string]struct {
		env      env
		audience string
		option   auth.Option
		want     []string
	}{
		"the other variables alone": {env: env{proxy: ""}, want: []string{proxy, "use-identity-binding"}},
		"no variable":               {env: env{proxy: "", name: "", caData: ""}, want: []string{proxy}},
		"http":                      {env: env{proxy: "http://proxy.example"}, want: []string{proxy, "https://"}},
		"user information":          {env: env{proxy: "https://me:hunter2@p.example"}, want: []string{proxy, "user name"}},
		"query":                     {env: env{proxy: "https://proxy.example/?key=hunter2"}, want: []string{proxy, "query"}},
		"fragment":                  {env: env{proxy: "https://proxy.example/#hunter2"}, want: []string{proxy, "fragment"}},
		"no host":                   {env: env{proxy: "https:///token"}, want: []string{proxy, "host"}},
		"file and data":             {env: env{caFile: "/ca"}, want: []string{caFile, caData}},
		"no certificate":            {env: env{caData: "hunter2"}, want: []string{caData, "PEM"}},
		"another audience":          {audience: "api://other", want: []string{"audience", "identity bindings"}},
		"a client":                  {option: auth.WithHTTPClient(w.http), want: []string{"auth.WithHTTPClient", "bindings"}},
		"a proxy":                   {option: elsewhere, want: []string{"auth.WithProxyURL", "identity bindings"}},
		"another issuer": {option: auth.WithSubjectIssuer(struct{ auth.SubjectIssuer }{}),
			want: []string{"an issuer of subject tokens", "identity bindings"}},
		"another cloud": {option: azure.WithAuthorityHost("https://login.microsoftonline.us"),
			want: []string{"authority", "identity bindings"}},
	} {
		t.Run(what, func(t *testing.T) {
			for variable, value := range tc.env {
				t.Setenv(variable, value)
			}
			var opts []auth.Option
			if tc.option != nil {
				opts = append(opts, tc.option)
			}
			p := azure.Provider{IdentityBindings: true, Audience: tc.audience}
			_, err := w.get(t.Context(), &p, "tenant-a", opts...)
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want...)
			_, own := auth.GetAccessToken(t.Context(), &p, opts...)
			testenv.CheckError(t, own, auth.ErrMisconfigured, tc.want...)
			if strings.Contains(err.Error()+own.Error(), "hunter2") {
				t.Errorf("a secret shows: %v, %v", err, own)
			}
		})
	}
	testenv.ExpectNone(t, w.Requests())
}

// One cache keeps the tokens of two proxies, and of Entra itself, apart.
func TestIdentityBindingsInTheCacheKey(t *testing.T) {
	w := newBoundEnvironment(t)
	cached := testenv.Cached(t, "tenant-a")
	first, data := bound(), os.Getenv("AZURE_KUBERNETES_CA_DATA")
	for range 2 {
		if _, err := w.get(t.Context(), first, "tenant-a", cached); err != nil {
			t.Fatal(err)
		}
	}
	calls := 1
	check := func(what string) {
		t.Helper()
		if calls++; w.Cloud.Calls("aks-token-proxy", "token") != calls {
			t.Errorf("%s is not part of the key", what)
		}
	}
	ask := func() {
		t.Helper()
		if _, err := w.get(t.Context(), bound(), "tenant-a", cached); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("AZURE_KUBERNETES_CA_DATA", data+data)
	ask()
	check("CA data")
	_, write := w.caFile(t)
	write([]byte(data))
	ask()
	check("CA file")
	t.Setenv("AZURE_KUBERNETES_TOKEN_PROXY", os.Getenv("AZURE_KUBERNETES_TOKEN_PROXY")+"/")
	ask()
	check("the address")
	t.Setenv("AZURE_KUBERNETES_SNI_NAME", "other.example")
	_, err := w.get(t.Context(), bound(), "tenant-a", cached)
	testenv.CheckError(t, err, auth.ErrUnavailable, "tls")
	w.trust(tenantID, clientA, "tenant-a")
	_, err = w.get(t.Context(), &azure.Provider{}, "tenant-a", cached, auth.WithHTTPClient(w.http))
	if err != nil || w.Cloud.Calls("entra", "token") != 1 {
		t.Errorf("without the field: %v", err)
	}
}

// Where the proxy hangs for one tenant, only that tenant waits, and no longer
// than its call.
func TestIdentityBindingsHangForOneTenant(t *testing.T) {
	w := newBoundEnvironment(t)
	p := bound()
	ofTenantA := func(c cloudtest.Call) bool { return c.Parameters["client_id"] == clientA }
	defer w.Cloud.AddFault(cloudtest.Fault{Hang: true, Match: ofTenantA})()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := w.get(ctx, p, "tenant-a")
		ended <- err
	}()
	for range 3 {
		if _, err := w.get(t.Context(), p, "tenant-b"); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the call ended before its context: %v", err)
	default:
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestDocumentation(t *testing.T) {
	document.Read(t, "docs/providers.md").Shows("example_test.go", "// bindings serves")
}
