package azblob_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/storetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/azblob"
)

const (
	tenant   = "11111111-2222-4333-8444-555555555555"
	clientID = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	account  = "myaccount"
	host     = account + ".blob.core.windows.net"
	secret   = "a-client-secret-of-the-publisher"
)

type environment struct {
	cloud *cloudtest.Cloud
	opts  azblob.Options
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{cloud: testenv.Cloud(t)}
	w.cloud.Azure().SetClientSecret(tenant, clientID, secret)
	w.cloud.Azure().SetContainer(account, "$web", cloudtest.AzureContainer{Tenant: tenant, Writers: []string{clientID}})
	w.opts = azblob.Options{Prefix: "cluster-1", HTTPClient: w.cloud.Client(), Credential: w.credential(t, secret)}
	return w
}

// credential signs in with the SDK.
func (w *environment) credential(t *testing.T, secret string) azcore.TokenCredential {
	t.Helper()
	c, err := azidentity.NewClientSecretCredential(tenant, clientID, secret, &azidentity.ClientSecretCredentialOptions{
		ClientOptions: azcore.ClientOptions{Transport: w.cloud.Client(),
			Retry: policy.RetryOptions{MaxRetries: -1}},
		DisableInstanceDiscovery: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *environment) open(t *testing.T) *azblob.Store {
	t.Helper()
	store, err := azblob.Open(account, "$web", w.opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestStore(t *testing.T) {
	storetest.CheckPrefixes(t, func(t *testing.T, prefix string) issuer.Store {
		t.Helper()
		w := newEnvironment(t)
		w.opts.Prefix = prefix
		return w.open(t)
	})
}

func TestPublishedFiles(t *testing.T) {
	w := newEnvironment(t)
	storetest.CheckPublished(t, w.open(t), w.cloud.Client(), "https://"+account+".z1.web.core.windows.net/cluster-1")
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		set    func(t *testing.T, w *environment)
		reason provider.Reason
		want   []string
	}{
		"no role": {func(_ *testing.T, w *environment) {
			w.cloud.Azure().SetContainer(account, "$web", cloudtest.AzureContainer{Tenant: tenant})
		}, provider.ErrDenied, []string{"AuthorizationPermissionMismatch", "Storage Blob Data Contributor"}},
		"account of another tenant": {func(_ *testing.T, w *environment) {
			w.cloud.Azure().SetContainer(account, "$web",
				cloudtest.AzureContainer{Tenant: "99999999-2222-4333-8444-555555555555", Writers: []string{clientID}})
		}, provider.ErrDenied, []string{"InvalidAuthenticationInfo", "tenant of the storage account"}},
		"wrong secret": {func(t *testing.T, w *environment) { w.opts.Credential = w.credential(t, "wrong-"+secret) },
			provider.ErrUnavailable, []string{"give this process an Azure identity"}},
		"no such container": {func(_ *testing.T, w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "blob", Status: 404, Code: "ContainerNotFound",
				Message: "The specified container does not exist."})
		}, provider.ErrMisconfigured, []string{"create the container"}},
		"leased blob": {func(_ *testing.T, w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "blob", Status: 412, Code: "LeaseIdMissing",
				Message: "There is currently a lease on the blob."})
		}, provider.ErrMisconfigured, []string{"break the lease"}},
		"redirect": {func(_ *testing.T, w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "blob", Redirect: "https://attacker.example/"})
		}, provider.ErrUnavailable, []string{"refused to follow a redirect"}},
		"a token in the answer": {func(_ *testing.T, w *environment) {
			w.opts.Credential = staticToken("secret-of-the-token")
			w.cloud.AddFault(cloudtest.Fault{Service: "blob", Status: 400, Code: "Bad",
				Message: "not a good token: secret-of-the-token"})
		}, provider.ErrUnavailable, []string{"Bad"}},
		"an answer of a proxy": {func(_ *testing.T, w *environment) {
			w.cloud.Handle(host, errorPage(http.StatusForbidden, "<html>secret-of-the-proxy</html>"))
		}, provider.ErrUnavailable, []string{"not one of Blob storage"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			tc.set(t, w)
			_, _, readErr := w.open(t).Read(t.Context(), issuer.KeysFile)
			for _, err := range []error{readErr, w.open(t).Write(t.Context(), issuer.KeysFile, []byte("{}"), "")} {
				storetest.CheckRefused(t, err, "secret-of", tc.reason, tc.want...)
			}
		})
	}
}

// errorPage answers like a proxy.
func errorPage(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) }
}

type staticToken string

func (s staticToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(s)}, nil
}

func TestOldAnswersOverwriteNothing(t *testing.T) {
	w := newEnvironment(t)
	honest := w.open(t)
	w.opts.HTTPClient = storetest.Stale(w.cloud.Client())
	storetest.CheckStale(t, honest, w.open(t))
}

func TestBadAnswers(t *testing.T) {
	for want, answer := range storetest.BadAnswers() {
		t.Run(want, func(t *testing.T) {
			w := newEnvironment(t)
			w.cloud.Handle(host, answer)
			if want == "unexpected EOF" { // HTTP/2 says so in other words
				want = "read the answer of host"
			}
			_, _, err := w.open(t).Read(t.Context(), issuer.KeysFile)
			testenv.CheckError(t, err, provider.ErrUnavailable, want)
		})
	}
}

func TestOpen(t *testing.T) {
	for name, tc := range map[string]struct{ account, container, prefix, want string }{
		"name":                  {"myaccount", "$web", "", ""},
		"another container":     {"myaccount", "oidc-documents", "a/b", ""},
		"host":                  {host, "$web", "", ""},
		"host of another cloud": {"myaccount.blob.core.usgovcloudapi.net", "$web", "", ""},
		"look-alike": {"myaccount.blob.core.windows.net.example", "$web", "",
			"neither the name of a storage account"},
		"a host outside Azure":    {"blob.example", "$web", "", "neither the name of a storage account"},
		"port":                    {host + ":8443", "$web", "", "neither the name of a storage account"},
		"user":                    {"me@" + host, "$web", "", "neither the name of a storage account"},
		"URL":                     {"http://" + host, "$web", "", "neither the name of a storage account"},
		"no account":              {"", "$web", "", "neither the name of a storage account"},
		"no container":            {"myaccount", "", "", "not the name of a container"},
		"container with a slash":  {"myaccount", "a/b", "", "not the name of a container"},
		"prefix that climbs":      {"myaccount", "$web", "../a", `prefix "../a"`},
		"prefix with a backslash": {"myaccount", "$web", `a\b`, `prefix "a\\b"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := azblob.Open(tc.account, tc.container, azblob.Options{Prefix: tc.prefix, Credential: staticToken("t")})
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
