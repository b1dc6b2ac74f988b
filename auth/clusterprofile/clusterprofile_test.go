package clusterprofile_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/clusterprofile"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	roleARN      = "arn:aws:iam::123456789012:role/tenant-a"
	prodARN      = "arn:aws:eks:eu-central-1:123456789012:cluster/prod"
	prodAddress  = "https://abcdef.gr7.eu-central-1.eks.amazonaws.com:443"
	spoke        = "https://spoke.example:6443"
	azureTenant  = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	azureClient  = "11111111-2222-4333-8444-555555555555"
	aksID        = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/prod"
	aksAddress   = "https://prod-1.hcp.westeurope.azmk8s.io:443"
	subjectOfApp = "system:serviceaccount:tenant-a:app"
)

type environment struct{ *testenv.Environment }

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{testenv.New(t, testenv.ServiceAccount("tenant-a", "app", aws.RoleARNAnnotation, roleARN,
		azure.ClientIDAnnotation, azureClient, azure.TenantIDAnnotation, azureTenant))}
	url, fetch := w.Issuer.URL(), w.Issuer.HTTPClient()
	w.Cloud.AWS().AddOIDCProvider("123456789012", url, fetch, aws.DefaultAudience)
	w.Cloud.AWS().SetRole(roleARN, cloudtest.Trust{Issuer: url, Subjects: []string{subjectOfApp}})
	w.Cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: prodARN, Endpoint: prodAddress, CA: w.Cloud.CA()})
	w.Cloud.AWS().SetEKSAccessEntry(prodARN, roleARN, cloudtest.EKSAccessEntry{})
	w.Cloud.Azure().AddFederatedCredential(azureTenant, azureClient,
		cloudtest.FederatedCredential{Issuer: url, Subject: subjectOfApp, Audience: azure.DefaultAudience, Fetch: fetch})
	w.Cloud.Azure().SetCluster(aksID,
		cloudtest.AzureCluster{Tenant: azureTenant, Users: []string{azureClient}, Addresses: []string{aksAddress},
			CA: w.Cloud.CA()})
	return w
}

var profileOfTenantA = cache.InvolvedObject{Kind: "ClusterProfile", Namespace: "tenant-a", Name: "spoke"}

// options are those of a controller that acts as the ServiceAccount app of
// tenant A.
func (w *environment) options(policy auth.Policy) []auth.Option {
	return w.Options("tenant-a", "app", auth.WithOwner(profileOfTenantA), auth.WithSTSRegion("eu-central-1"),
		auth.WithPolicy(policy))
}

func cluster(server, ca, config string) *clientcmdv1.Cluster {
	c := &clientcmdv1.Cluster{Server: server, CertificateAuthorityData: []byte(ca),
		Extensions: []clientcmdv1.NamedExtension{
			{Name: "clusterprofiles.multicluster.x-k8s.io/exec/additional-args",
				Extension: runtime.RawExtension{Raw: []byte(`["--service-account=tenant-b/app"]`)}}}}
	if config != "" {
		c.Extensions = append(c.Extensions,
			clientcmdv1.NamedExtension{Name: "client.authentication.k8s.io/exec",
				Extension: runtime.RawExtension{Raw: []byte(config)}})
	}
	return c
}

func named(name string) string { return `{"clusterName":"` + name + `"}` }

// The author of a ClusterProfile chooses address, CA, proxy and name. Address
// and CA are the cluster's own, as its cloud says, or the token's audience is
// the address, or the policy allows the cluster.
func TestGetConfig(t *testing.T) {
	w := newEnvironment(t)
	ca, foreignCA := string(w.Cloud.CA()), string(testenv.Cloud(t).CA())
	const evil = "https://evil.example"
	insecure, file, serverName := cluster(spoke, "", ""), cluster(spoke, "", ""), cluster(spoke, "", "")
	insecure.InsecureSkipTLSVerify, file.CertificateAuthority, serverName.TLSServerName = true, "/etc/passwd",
		"evil.example"
	fleet := []auth.Option{auth.WithAudiences("fleet")}
	for name, tc := range map[string]struct {
		provider auth.Provider
		cluster  *clientcmdv1.Cluster
		more     []auth.Option
		policy   auth.Policy
		host, ca string // of the config
		reason   provider.Reason
		want     string
	}{
		"EKS by its ARN": {provider: &aws.Provider{}, cluster: cluster(prodAddress, ca, named(prodARN)),
			host: prodAddress, ca: ca},
		"EKS by its name": {provider: &aws.Provider{}, cluster: cluster(prodAddress, ca, named("prod")),
			host: prodAddress, ca: ca},
		"EKS, the CA is the cloud's": {provider: &aws.Provider{}, cluster: cluster(prodAddress, foreignCA, named(prodARN)),
			host: prodAddress, ca: ca},
		"EKS, foreign address": {provider: &aws.Provider{}, cluster: cluster(evil, foreignCA, named(prodARN)),
			reason: auth.ErrMisconfigured, want: "is not that of the cluster"},
		"EKS, name, foreign": {provider: &aws.Provider{}, cluster: cluster(evil, foreignCA, named("prod")),
			reason: auth.ErrMisconfigured, want: "is not that of the cluster"},
		"EKS, flag's name, foreign": {provider: &aws.Provider{}, cluster: cluster(evil, foreignCA, ""),
			more: []auth.Option{aws.WithClusterName("prod")}, reason: auth.ErrDenied, want: "clusterName"},
		"EKS without a name": {provider: &aws.Provider{}, cluster: cluster(evil, foreignCA, ""),
			reason: auth.ErrMisconfigured, want: "name"},
		"AKS by its resource ID": {provider: &azure.Provider{}, cluster: cluster(aksAddress, ca, named(aksID)),
			host: aksAddress, ca: ca},
		"AKS, foreign address": {provider: &azure.Provider{}, cluster: cluster(evil, foreignCA, named(aksID)),
			reason: auth.ErrMisconfigured, want: "is not one of those of the cluster"},
		"AKS by its name": {provider: &azure.Provider{}, cluster: cluster(evil, foreignCA, named("prod")),
			reason: auth.ErrMisconfigured, want: "/subscriptions/<GUID>"},
		"AKS without a name": {provider: &azure.Provider{}, cluster: cluster(evil, foreignCA, ""),
			reason: auth.ErrDenied, want: "clusterName"},
		"AKS, policy refuses": {provider: &azure.Provider{}, cluster: cluster(evil, foreignCA, ""), reason: auth.ErrDenied,
			want:   "clusterName",
			policy: auth.Policy{AllowCluster: func(r auth.ClusterRequest) bool { return r.Address == aksAddress }}},
		"AKS, policy allows": {provider: &azure.Provider{}, cluster: cluster(aksAddress, ca, ""), host: aksAddress, ca: ca,
			policy: auth.Policy{AllowCluster: func(r auth.ClusterRequest) bool {
				return r == auth.ClusterRequest{Owner: profileOfTenantA, Address: aksAddress, CAFromObject: true}
			}}},
		"generic": {provider: &token.Provider{}, cluster: cluster(spoke, foreignCA, ""), host: spoke,
			ca: foreignCA},
		"generic, a name is of no use": {provider: &token.Provider{}, cluster: cluster(spoke, foreignCA, named("spoke-1")),
			host: spoke, ca: foreignCA},
		"generic, an audience for many": {provider: &token.Provider{}, cluster: cluster(evil, "", ""), more: fleet,
			policy: auth.Policy{Audiences: []string{"fleet"}}, reason: auth.ErrDenied, want: "clusterName"},
		"generic, audience and policy": {provider: &token.Provider{}, cluster: cluster(spoke, foreignCA, ""), more: fleet,
			host: spoke, ca: foreignCA,
			policy: auth.Policy{Audiences: []string{"fleet"}, AllowCluster: func(r auth.ClusterRequest) bool {
				return r.Address == spoke
			}}},
		"no owner": {provider: &token.Provider{}, cluster: cluster(spoke, "", ""),
			more: []auth.Option{auth.WithOwner(cache.InvolvedObject{})}, reason: auth.ErrMisconfigured, want: "owner"},
		"another tenant's": {provider: &token.Provider{}, cluster: cluster(spoke, "", ""),
			more: []auth.Option{auth.WithOwner(cache.InvolvedObject{Kind: "ClusterProfile", Namespace: "tenant-b",
				Name: "x"})},
			reason: auth.ErrDenied, want: `namespace "tenant-a"`},
		"no cluster": {provider: &token.Provider{}, reason: auth.ErrMisconfigured, want: "cluster"},
		"insecure": {provider: &token.Provider{}, cluster: insecure, reason: auth.ErrMisconfigured,
			want: "insecure-skip-tls-verify"},
		"a file of the controller": {provider: &token.Provider{}, cluster: file, reason: auth.ErrMisconfigured,
			want: "certificate-authority-data"},
		"another server's name": {provider: &token.Provider{}, cluster: serverName, reason: auth.ErrMisconfigured,
			want: "tls-server-name"},
		"http": {provider: &token.Provider{}, cluster: cluster("http://spoke.example", "", ""),
			reason: auth.ErrMisconfigured, want: "https"},
		"config is a list": {provider: &aws.Provider{}, cluster: cluster(prodAddress, ca, `["prod"]`),
			reason: auth.ErrMisconfigured, want: "clusterName"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := clusterprofile.GetConfig(t.Context(), tc.provider, tc.cluster,
				append(w.options(tc.policy), tc.more...)...)
			if tc.reason != "" {
				testenv.CheckError(t, err, tc.reason, tc.want)
				if config != nil {
					t.Errorf("got %+v", config)
				}
				return
			}
			if err != nil || config.Host != tc.host || string(config.CAData) != tc.ca || config.Proxy != nil {
				t.Fatalf("got %+v, %v", config, err)
			}
		})
	}
}

// The controller's own identity needs Policy.AllowCluster for every cluster, as
// in auth.GetRESTConfig.
func TestOwnIdentity(t *testing.T) {
	w := newEnvironment(t)
	for name, c := range map[string]*clientcmdv1.Cluster{"by its ARN": cluster(prodAddress, "", named(prodARN)),
		"by its name": cluster(prodAddress, "", named("prod"))} {
		_, err := clusterprofile.GetConfig(t.Context(), &aws.Provider{}, c, auth.WithOwner(profileOfTenantA),
			auth.WithHTTPClient(w.Cloud.Client()), auth.WithSTSRegion("eu-central-1"))
		t.Run(name, func(t *testing.T) { testenv.CheckError(t, err, auth.ErrDenied, "own identity") })
	}
	_, err := clusterprofile.GetConfig(t.Context(), &token.Provider{}, cluster(spoke, string(w.Cloud.CA()), ""),
		auth.WithOwner(profileOfTenantA))
	testenv.CheckError(t, err, auth.ErrDenied, "own identity")
	if n := len(w.Cloud.Log()); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A proxy with a CA of the same author reads the token, so the policy has to
// allow it.
func TestProxy(t *testing.T) {
	w := newEnvironment(t)
	c := cluster(spoke, string(w.Cloud.CA()), "")
	c.ProxyURL = "http://user:hunter2@proxy.example:3128"
	for name, policy := range map[string]auth.Policy{"no policy": {},
		"another proxy": {AllowProxy: func(_ cache.InvolvedObject, proxy url.URL) bool { return proxy.Host == "other:1" }}} {
		t.Run(name, func(t *testing.T) {
			_, err := clusterprofile.GetConfig(t.Context(), &token.Provider{}, c, w.options(policy)...)
			testenv.CheckError(t, err, auth.ErrDenied, "proxy.example:3128")
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password of the proxy: %v", err)
			}
		})
	}
	allowed := auth.Policy{AllowProxy: func(owner cache.InvolvedObject, proxy url.URL) bool {
		return owner == profileOfTenantA && proxy.Host == "proxy.example:3128"
	}}
	config, err := clusterprofile.GetConfig(t.Context(), &token.Provider{}, c, w.options(allowed)...)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := config.Proxy(&http.Request{}); err != nil || u.String() != c.ProxyURL {
		t.Errorf("got %v, %v, want %s", u, err, c.ProxyURL)
	}
	for _, malformed := range []string{"proxy.example", "ftp://proxy.example", "http://", "http://%"} {
		c.ProxyURL = malformed
		_, err := clusterprofile.GetConfig(t.Context(), &token.Provider{}, c,
			w.options(auth.Policy{AllowProxy: func(cache.InvolvedObject, url.URL) bool { return true }})...)
		testenv.CheckError(t, err, auth.ErrMisconfigured, "proxy-url")
	}
}

// A refusal of the policy takes effect with the next request.
func TestPolicyIsAskedForEachRequest(t *testing.T) {
	w := newEnvironment(t)
	allowed := true
	policy := auth.Policy{AllowCluster: func(auth.ClusterRequest) bool { return allowed }}
	config, err := clusterprofile.GetConfig(t.Context(), &azure.Provider{}, cluster(aksAddress, string(w.Cloud.CA()), ""),
		w.options(policy)...)
	if err != nil {
		t.Fatal(err)
	}
	allowed = false
	transport := config.WrapTransport(http.DefaultTransport)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, aksAddress+"/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	testenv.CheckError(t, err, auth.ErrDenied, "clusterName")
}
