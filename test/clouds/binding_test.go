package clouds_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

const boundScope = "https://management.azure.com/.default"

// boundPod is a pod of AKS with identity bindings: its environment, and a token
// of its ServiceAccount from a real API server.
type boundPod struct {
	*environment
	proxy     *cloudtest.AKSTokenProxy
	clientID  string
	namespace string
}

func newBoundPod(t *testing.T) *boundPod {
	t.Helper()
	w := newEnvironment(t)
	proxy, err := w.cloud.Azure().NewTokenProxy(w.cluster.IssuerURL(), w.cluster.IssuerClient(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &boundPod{environment: w, proxy: proxy, clientID: "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08",
		namespace: w.cluster.Namespace(t)}
	p.allow(true)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "app",
		Annotations: map[string]string{azure.ClientIDAnnotation: p.clientID, azure.TenantIDAnnotation: azureTenant}}}
	if err := w.cluster.Client().Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	request.Spec.Audiences = []string{azure.IdentityBindingAudience}
	if err := w.cluster.Client().SubResource("token").Create(t.Context(), sa, request); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"token": []byte(request.Status.Token), "ca.crt": proxy.CA()} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range proxy.Env() {
		t.Setenv(name, value)
	}
	t.Setenv("AZURE_KUBERNETES_CA_DATA", "")
	t.Setenv("AZURE_KUBERNETES_CA_FILE", filepath.Join(dir, "ca.crt"))
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", filepath.Join(dir, "token"))
	t.Setenv("AZURE_CLIENT_ID", p.clientID)
	t.Setenv("AZURE_TENANT_ID", azureTenant)
	t.Setenv("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com/")
	return p
}

func (p *boundPod) allow(yes bool) {
	var subjects []string
	if yes {
		subjects = []string{"system:serviceaccount:" + p.namespace + ":app"}
	}
	p.proxy.SetRight(azureTenant, p.clientID, subjects...)
}

// clients are the SDK's client of the pod, ours of the pod, and ours of a
// controller for the ServiceAccount. None caches.
func (p *boundPod) clients(t *testing.T) map[string]func(context.Context) (string, error) {
	t.Helper()
	provider := &azure.Provider{IdentityBindings: true}
	request := policy.TokenRequestOptions{Scopes: []string{boundScope}}
	ours := func(opts ...auth.Option) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			token, err := provider.NewTokenCredential(opts...).GetToken(ctx, request)
			return token.Token, err
		}
	}
	return map[string]func(context.Context) (string, error){
		"azidentity": func(ctx context.Context) (string, error) { return p.sdk(ctx, true, nil) },
		"the pod":    ours(),
		"the tenant": ours(auth.WithServiceAccount(client.ObjectKey{Namespace: p.namespace, Name: "app"}, p.client),
			auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: p.namespace, Name: "b"})),
	}
}

// sdk makes a credential for one token, because the SDK keeps tokens.
func (p *boundPod) sdk(ctx context.Context, proxy bool, transport *http.Client) (string, error) {
	options := &azidentity.WorkloadIdentityCredentialOptions{EnableAzureProxy: proxy, DisableInstanceDiscovery: true,
		ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}
	if transport != nil {
		options.Transport = transport
	}
	credential, err := azidentity.NewWorkloadIdentityCredential(options)
	if err != nil {
		return "", err
	}
	token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{boundScope}})
	return token.Token, err
}

// tokenRequests returns the token requests of a call to the proxy.
func (p *boundPod) tokenRequests(t *testing.T, use func(context.Context) (string, error)) []cloudtest.Call {
	t.Helper()
	before := len(p.cloud.Log())
	token, err := use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id, _ := p.cloud.Azure().Identity(token)
	if id.ClientID != p.clientID || !strings.HasSuffix(id.Subject, p.namespace+":app") {
		t.Errorf("got a token of %+v", id)
	}
	var requests []cloudtest.Call
	for _, call := range p.cloud.Log()[before:] {
		if call.Service != "aks-token-proxy" {
			t.Errorf("%s was asked", call.Service)
		}
		if call.Action == "token" {
			requests = append(requests, call)
		}
	}
	return requests
}

// The SDK's own client of identity bindings and ours send the proxy the same
// request, over the same environment.
func TestIdentityBindingsLikeAzidentity(t *testing.T) {
	p := newBoundPod(t)
	clients := p.clients(t)
	theirs := p.tokenRequests(t, clients["azidentity"])
	for what, use := range clients {
		got := p.tokenRequests(t, use)
		if len(got) != 1 || len(theirs) != 1 {
			t.Fatalf("%s: %d requests, azidentity sends %d", what, len(got), len(theirs))
		}
		if got[0].Host != theirs[0].Host {
			t.Errorf("%s: Host %q, azidentity sends %q", what, got[0].Host, theirs[0].Host)
		}
		for _, name := range []string{"tenant", "grant_type", "client_id", "client_assertion_type"} {
			if got[0].Parameters[name] == "" || got[0].Parameters[name] != theirs[0].Parameters[name] {
				t.Errorf("%s: %s %q, azidentity sends %q", what, name, got[0].Parameters[name], theirs[0].Parameters[name])
			}
		}
	}
	p.allow(false)
	for what, use := range clients {
		if _, err := use(t.Context()); err == nil {
			t.Errorf("%s: a token without the right", what)
		}
	}
	p.allow(true)
	if err := p.proxy.RotateCA(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("AZURE_KUBERNETES_CA_FILE"), p.proxy.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, use := range clients {
		if _, err := use(t.Context()); err != nil {
			t.Errorf("%s, with a new certificate authority: %v", what, err)
		}
	}
}

// What azidentity refuses in the environment, we refuse.
func TestIdentityBindingsRefuseLikeAzidentity(t *testing.T) {
	p := newBoundPod(t)
	const proxy = "AZURE_KUBERNETES_TOKEN_PROXY"
	for name, env := range map[string]map[string]string{
		"the other variables alone": {proxy: ""},
		"http":                      {proxy: "http://proxy.example"},
		"user information":          {proxy: "https://user@proxy.example"},
		"query":                     {proxy: "https://proxy.example/?q=1"},
		"fragment":                  {proxy: "https://proxy.example/#f"},
		"file and data":             {"AZURE_KUBERNETES_CA_DATA": string(p.proxy.CA())},
		"no certificate":            {"AZURE_KUBERNETES_CA_DATA": "none", "AZURE_KUBERNETES_CA_FILE": ""},
		"no file":                   {"AZURE_KUBERNETES_CA_FILE": "/nonexistent/ca.crt"},
		"another server name":       {"AZURE_KUBERNETES_SNI_NAME": "other.example"},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range env {
				t.Setenv(variable, value)
			}
			for what, use := range p.clients(t) {
				if _, err := use(t.Context()); err == nil {
					t.Errorf("%s takes it", what)
				}
			}
		})
	}
	if n := p.cloud.Calls("", ""); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

// Both leave the variables alone unless they are told to use them.
func TestIdentityBindingsAreOffLikeAzidentity(t *testing.T) {
	p := newBoundPod(t)
	p.cloud.Azure().AddFederatedCredential(azureTenant, p.clientID, cloudtest.FederatedCredential{
		Issuer: p.cluster.IssuerURL(), Subject: "system:serviceaccount:" + p.namespace + ":app",
		Audience: azure.DefaultAudience, Fetch: p.cluster.IssuerClient(t)})
	_, theirs := p.sdk(t.Context(), false, p.cloud.Client())
	_, ours := auth.GetAccessToken(t.Context(), &azure.Provider{}, auth.WithHTTPClient(p.cloud.Client()))
	for what, err := range map[string]error{"azidentity": theirs, "the pod": ours} {
		if err == nil || !strings.Contains(err.Error(), "AADSTS700212") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := p.cloud.Calls("aks-token-proxy", ""); n != 0 {
		t.Errorf("the proxy was asked %d times", n)
	}
}
