package azure_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	clusterID = "/subscriptions/0b1f6471-1bf0-4dda-aec3-111122223333/resourceGroups/my-group_1.(x)/providers/Microsoft.ContainerService/managedClusters/my-cluster"
	address   = "https://my-cluster-abc.hcp.westeurope.azmk8s.io:443"
)

// Two certificate authorities, made once.
var clusterCA, otherCA = newCA(), newCA()

func newCA() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func cluster() cloudtest.AzureCluster {
	return cloudtest.AzureCluster{Tenant: tenantID, Users: []string{clientA}, Addresses: []string{address},
		CA:          []byte(clusterCA),
		PrivateFQDN: "my-cluster-abc.0123.privatelink.westeurope.azmk8s.io"}
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func (w *environment) restConfig(t testing.TB, p *azure.Provider, name string,
	more ...auth.Option) (*auth.RESTConfig, error) {
	t.Helper()
	return auth.GetRESTConfig(t.Context(), p, w.Options("tenant-a", name, more...)...)
}

func TestCluster(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.Cloud.Azure().SetCluster(clusterID, cluster())
	for name, tc := range map[string]struct {
		opts     []auth.Option
		host, ca string
		calls    int // of Azure Resource Manager
	}{
		"name": {[]auth.Option{auth.WithClusterResource(clusterID)}, address, clusterCA, 2},
		"name in other case": {[]auth.Option{auth.WithClusterResource(strings.ToLower(clusterID))}, address,
			clusterCA, 2},
		"name and address": {[]auth.Option{auth.WithClusterResource(clusterID), auth.WithClusterAddress(address)},
			address, clusterCA, 2},
		"name and its other name": {[]auth.Option{auth.WithClusterResource(clusterID),
			auth.WithClusterAddress("https://my-cluster-abc.0123.privatelink.westeurope.azmk8s.io:443")},
			"https://my-cluster-abc.0123.privatelink.westeurope.azmk8s.io:443", clusterCA, 2},
		"name and CA": {[]auth.Option{auth.WithClusterResource(clusterID), auth.WithCAData(otherCA)}, address,
			otherCA, 2},
		"address and CA": {[]auth.Option{auth.WithClusterAddress("https://10.0.0.1:443"), auth.WithCAData(otherCA)},
			"https://10.0.0.1:443", otherCA, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.Cloud.Calls("arm", "")
			c, err := w.restConfig(t, &azure.Provider{}, "app", tc.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if c.Host() != tc.host || string(c.CAData()) != tc.ca {
				t.Errorf("host %q, CA %q", c.Host(), c.CAData())
			}
			id, ok := w.Cloud.Azure().Identity(c.BearerToken())
			if !ok || id.Audience != "6dae42f8-4368-4678-94ff-3960e28e3630" || id.ClientID != clientA || c.GetDuration() <= 0 {
				t.Errorf("the bearer is that of %+v", id)
			}
			if n := w.Cloud.Calls("arm", "") - before; n != tc.calls {
				t.Errorf("%d calls of Azure Resource Manager", n)
			}
		})
	}
}

// Azure Resource Manager is that of the cluster's own cloud.
func TestClustersOfOtherClouds(t *testing.T) {
	clearEnvironment(t)
	w := newClouds(t)
	for name, tc := range map[string]struct{ authority, manager, tenant string }{
		"us":  {"https://login.microsoftonline.us", "management.usgovcloudapi.net", usTenant},
		"cn":  {"https://login.chinacloudapi.cn", "management.chinacloudapi.cn", cnTenant},
		"own": {"https://" + ownAuthority, ownManager, ownTenant},
	} {
		c := cluster()
		c.Tenant = tc.tenant
		w.Cloud.Azure().SetCluster(clusterID, c)
		before := len(w.Cloud.Log())
		_, err := w.restConfig(t, &azure.Provider{PrivateClouds: []azure.Cloud{privateCloud()}}, name,
			auth.WithClusterResource(clusterID), azure.WithAuthorityHost(tc.authority))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, call := range w.Cloud.Log()[before:] {
			if call.Service == "arm" && call.Host != tc.manager {
				t.Errorf("%s: %s was asked", name, call.Host)
			}
		}
	}
	p := &azure.Provider{PrivateClouds: []azure.Cloud{{AuthorityHost: "https://" + ownAuthority}}}
	_, err := w.restConfig(t, p, "own", auth.WithClusterResource(clusterID),
		azure.WithAuthorityHost("https://"+ownAuthority))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "PrivateClouds", "address and CA")
}

func TestClusterThatIsRefused(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	change := func(f func(*cloudtest.AzureCluster)) cloudtest.AzureCluster {
		c := cluster()
		f(&c)
		return c
	}
	named := auth.WithClusterResource(clusterID)
	for name, tc := range map[string]struct {
		cluster cloudtest.AzureCluster
		opt     auth.Option
		fault   cloudtest.Fault
		reason  provider.Reason
		want    []string
	}{
		"being created": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.ProvisioningState = "Creating"
		}), reason: auth.ErrUnavailable, want: []string{"being created", clusterID}},
		"no kubeconfig": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.Addresses, c.FQDN = nil, "x.azmk8s.io"
		}), reason: auth.ErrUnavailable, want: []string{"kubeconfig"}},
		"no names": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.Addresses, c.PrivateFQDN = nil, ""
		}), reason: auth.ErrUnavailable, want: []string{"no address"}},
		"no CA": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.CA = nil
		}), reason: auth.ErrUnavailable, want: []string{"certificate authority"}},
		"bad PEM": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.CA = []byte("x")
		}), reason: auth.ErrUnavailable, want: []string{"PEM"}},
		"no certificate": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.CA = []byte("-----BEGIN CERTIFICATE-----\nZmFrZQ==\n-----END CERTIFICATE-----\n")
		}), reason: auth.ErrUnavailable, want: []string{"PEM"}},
		"http": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.Addresses[0] = "http://x.azmk8s.io"
		}), reason: auth.ErrUnavailable, want: []string{`"http://x.azmk8s.io"`}},
		"no Entra": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.WithoutEntra = true
		}), reason: auth.ErrMisconfigured, want: []string{"aadProfile", "--enable-aad"}},
		"not allowed": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.Users = nil
		}), reason: auth.ErrDenied, want: []string{"AuthorizationFailed", "Azure Kubernetes Service Cluster User Role"}},
		"other tenant": {cluster: change(func(c *cloudtest.AzureCluster) {
			c.Tenant = usTenant
		}), reason: auth.ErrMisconfigured, want: []string{"InvalidAuthenticationTokenTenant", azure.TenantIDAnnotation}},
		"other address": {cluster: cluster(), opt: auth.WithClusterAddress("https://evil.example:443"),
			reason: auth.ErrMisconfigured, want: []string{`"https://evil.example:443"`, address}},
		"no such cluster": {cluster: cluster(), opt: auth.WithClusterResource(clusterID + "2"),
			reason: auth.ErrMisconfigured, want: []string{"ResourceNotFound", "resource ID"}},
		"throttled": {cluster: cluster(),
			fault:  cloudtest.Fault{Status: 429, Code: "TooManyRequests", Message: "slow down", RetryAfter: "60"},
			reason: auth.ErrThrottled, want: []string{"slow down"}},
		"HTML": {cluster: cluster(), fault: cloudtest.Fault{Body: "<html>"}, reason: auth.ErrUnavailable,
			want: []string{"JSON"}},
		"empty object": {cluster: cluster(), fault: cloudtest.Fault{Body: "{}"}, reason: auth.ErrMisconfigured,
			want: []string{"aadProfile"}},
		"null of aadProfile": {cluster: cluster(), fault: cloudtest.Fault{Body: `{"properties":{"aadProfile":null}}`},
			reason: auth.ErrMisconfigured, want: []string{"aadProfile"}},
		"address alone": {opt: auth.WithClusterAddress(address), reason: auth.ErrMisconfigured,
			want: []string{"two of"}},
		"redirect": {cluster: cluster(), fault: cloudtest.Fault{Redirect: "https://evil.example/"},
			reason: auth.ErrUnavailable, want: []string{"redirect"}},
		"kubeconfig is none": {cluster: cluster(),
			fault:  cloudtest.Fault{Action: "listClusterUserCredential", Body: `{"kubeconfigs":[{"value":"e1s="}]}`},
			reason: auth.ErrUnavailable, want: []string{"malformed"}},
		"kubeconfig no base": {cluster: cluster(),
			fault:  cloudtest.Fault{Action: "listClusterUserCredential", Body: `{"kubeconfigs":[{"value":"!"}]}`},
			reason: auth.ErrUnavailable, want: []string{"JSON"}},
		"no kubeconfigs": {cluster: cluster(), fault: cloudtest.Fault{Action: "listClusterUserCredential", Body: `{}`},
			reason: auth.ErrUnavailable, want: []string{"no kubeconfig"}},
		"kubeconfigs is null": {cluster: cluster(), fault: cloudtest.Fault{Action: "listClusterUserCredential", Body: `null`},
			reason: auth.ErrUnavailable, want: []string{"no kubeconfig"}},
	} {
		t.Run(name, func(t *testing.T) {
			w.Cloud.Azure().SetCluster(clusterID, tc.cluster)
			opts := []auth.Option{named}
			if name == "address alone" {
				opts = nil
			}
			if tc.opt != nil {
				opts = append(opts, tc.opt)
			}
			if tc.fault.Status != 0 || tc.fault.Body != "" || tc.fault.Redirect != "" {
				tc.fault.Service = "arm"
				defer w.Cloud.AddFault(tc.fault)()
			}
			c, err := w.restConfig(t, &azure.Provider{}, "app", opts...)
			if c != nil {
				t.Errorf("got %v", c)
			}
			testenv.CheckError(t, err, tc.reason, tc.want...)
		})
	}
}

func TestClusterIDsThatAreRefused(t *testing.T) {
	clearEnvironment(t)
	const good = "/subscriptions/0b1f6471-1bf0-4dda-aec3-111122223333/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"
	p := &azure.Provider{}
	for _, id := range []string{
		"c", "/", good + "/", good[1:], "https://management.azure.com" + good, good + "?api-version=1", good + "#x",
		good + "/../d", good + "\n", " " + good,
		strings.Replace(good, "0b1f6471", "../../..", 1), strings.Replace(good, "0b1f6471-", "", 1),
		strings.Replace(good, "/g/", "//", 1), strings.Replace(good, "/g/", "/../", 1),
		strings.Replace(good, "/g/", "/g./", 1), strings.Replace(good, "/g/", "/a b/", 1),
		strings.Replace(good, "/g/", "/a%2fb/", 1), strings.Replace(good, "/g/", "/"+strings.Repeat("a", 91)+"/", 1),
		strings.Replace(good, "Clusters/c", "Clusters/", 1), strings.Replace(good, "Clusters/c", "Clusters/-c", 1),
		strings.Replace(good, "Clusters/c", "Clusters/"+strings.Repeat("c", 64), 1),
		strings.Replace(good, "managedClusters", "fleets", 1),
		strings.Replace(good, "Microsoft.ContainerService", "Microsoft.Evil", 1), strings.Repeat(good, 100),
		"arn:aws:eks:eu-central-1:123456789012:cluster/c",
	} {
		_, err := p.GetAccessTokenOptionsForCluster(&provider.Options{ClusterResource: id})
		testenv.CheckError(t, err, auth.ErrMisconfigured, "resource ID of an AKS cluster")
	}
	if access, err := p.GetAccessTokenOptionsForCluster(&provider.Options{ClusterResource: good}); err != nil ||
		len(access.AccessTokens) != 2 {
		t.Errorf("got %d access tokens, %v, want 2", len(access.AccessTokens), err)
	}
}
