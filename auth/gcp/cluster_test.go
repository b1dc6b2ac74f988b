package gcp_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	clusterName = "projects/project/locations/europe-west1/clusters/prod"
	dnsEndpoint = "gke-0123456789abcdef-" + number + ".europe-west1.gke.goog"
)

func (w *environment) setCluster(c cloudtest.GKECluster) {
	if c.Viewers == nil {
		c.Viewers = []string{"serviceAccount:" + email("tenant-a")}
	}
	w.Cloud.GCP().SetCluster(clusterName, c)
}

// config asks the provider for access as auth.GetRESTConfig does.
func (w *environment) config(t *testing.T, tenant, cluster, address, ca string) (*auth.RESTConfig, error) {
	t.Helper()
	p := &gcp.Provider{}
	opts := &provider.Options{HTTPClient: w.Cloud.Client(), ClusterResource: cluster, CAData: ca}
	if address != "" {
		canonical, err := provider.ParseClusterAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		opts.ClusterAddress = canonical
	}
	access, err := p.GetAccessTokenOptionsForCluster(opts)
	if err != nil {
		return nil, err
	}
	if n := len(access.AccessTokens); n != 1 || len(access.AccessTokens[0]) > 0 {
		t.Fatalf("%d access tokens are wanted", n)
	}
	token, err := w.getFrom(t, p, tenant, "app")
	if err != nil {
		t.Fatal(err)
	}
	config, err := p.NewRESTConfig(t.Context(), []auth.Token{token}, opts)
	if err == nil && (config.BearerToken() != token.AccessToken() || !config.ExpiresAt().Equal(token.ExpiresAt())) {
		t.Error("the bearer is not the access token, or does not end with it")
	}
	return config, err
}

func TestClusterEndpoints(t *testing.T) {
	w := newEnvironment(t)
	ca := w.Cloud.CA()
	const given = "-----BEGIN CERTIFICATE-----\ngiven\n-----END CERTIFICATE-----\n"
	all := cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", PrivateEndpoint: "10.0.0.2", DNSEndpoint: dnsEndpoint, CA: ca}
	for name, tc := range map[string]struct {
		cluster       cloudtest.GKECluster
		address, ca   string
		host, trusted string
	}{
		"public first": {all, "", "", "https://34.1.2.3:443", string(ca)},
		"private next": {cloudtest.GKECluster{PrivateEndpoint: "10.0.0.2", DNSEndpoint: dnsEndpoint, CA: ca}, "", "",
			"https://10.0.0.2:443", string(ca)},
		"DNS last": {cloudtest.GKECluster{DNSEndpoint: dnsEndpoint, CA: ca}, "", "",
			"https://" + dnsEndpoint + ":443", ""},
		"DNS without auth": {cloudtest.GKECluster{DNSEndpoint: dnsEndpoint}, "", "",
			"https://" + dnsEndpoint + ":443", ""},
		"private by address": {all, "https://10.0.0.2", "", "https://10.0.0.2:443", string(ca)},
		"DNS by address": {all, "https://" + strings.ToUpper(dnsEndpoint) + "/", "",
			"https://" + dnsEndpoint + ":443", ""},
		"given CA wins":  {all, "", given, "https://34.1.2.3:443", given},
		"given CA alone": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3"}, "", given, "https://34.1.2.3:443", given},
		"given CA for DNS": {cloudtest.GKECluster{DNSEndpoint: dnsEndpoint}, "", given,
			"https://" + dnsEndpoint + ":443", given},
		"of before 2024": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", CA: ca, Legacy: true}, "", "",
			"https://34.1.2.3:443", string(ca)},
		"private, before 2024": {cloudtest.GKECluster{PrivateEndpoint: "10.0.0.2", CA: ca, Legacy: true}, "", "",
			"https://10.0.0.2:443", string(ca)},
		"both, before 2024": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", PrivateEndpoint: "10.0.0.2", CA: ca,
			Legacy: true}, "", "", "https://34.1.2.3:443", string(ca)},
		"IPv6": {cloudtest.GKECluster{PublicEndpoint: "[2600:1900::1]", CA: ca}, "https://2600:1900:0::1", "",
			"https://[2600:1900::1]:443", string(ca)},
		"legacy endpoint only": {
			cloudtest.GKECluster{Body: `{"status":"RUNNING","endpoint":"34.1.2.3","masterAuth":{"clusterCaCertificate":"` +
				base64.StdEncoding.EncodeToString(ca) + `"}}`},
			"", "", "https://34.1.2.3:443", string(ca)},
		"IP switched off": {
			cloudtest.GKECluster{
				Body: `{"status":"RUNNING","endpoint":"34.1.2.3","controlPlaneEndpointsConfig":{"ipEndpointsConfig":{"enabled":false,"publicEndpoint":"34.1.2.3"},` +
					`"dnsEndpointConfig":{"endpoint":"` + dnsEndpoint + `"}}}`}, "", "", "https://" + dnsEndpoint + ":443", ""},
		"DNS of another domain": {cloudtest.GKECluster{DNSEndpoint: "gke-1.example"}, "", "",
			"https://gke-1.example:443", ""},
		"name of a DNS endpoint": {cloudtest.GKECluster{PublicEndpoint: dnsEndpoint, CA: ca}, "", "",
			"https://" + dnsEndpoint + ":443", string(ca)},
		"100 node pools": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", CA: ca, NodePools: make([]string, 100)},
			"", "", "https://34.1.2.3:443", string(ca)},
		"degraded": {cloudtest.GKECluster{Status: "DEGRADED", PublicEndpoint: "34.1.2.3", CA: ca}, "", "",
			"https://34.1.2.3:443", string(ca)},
	} {
		t.Run(name, func(t *testing.T) {
			w.setCluster(tc.cluster)
			config, err := w.config(t, "tenant-a", clusterName, tc.address, tc.ca)
			if err != nil {
				t.Fatal(err)
			}
			if config.Host() != tc.host || !bytes.Equal(config.CAData(), []byte(tc.trusted)) {
				t.Errorf("host %q, CA %.60q", config.Host(), config.CAData())
			}
		})
	}
}

func TestClusterByAddressAndCA(t *testing.T) {
	w := newEnvironment(t)
	config, err := w.config(t, "tenant-a", "", "https://10.0.0.2", "pem")
	if err != nil || config.Host() != "https://10.0.0.2:443" || string(config.CAData()) != "pem" {
		t.Errorf("got %v, %v", config, err)
	}
	if n := w.Cloud.Calls("container", ""); n != 0 {
		t.Errorf("GKE was asked %d times", n)
	}
}

// Anybody gets a certificate that the system's roots trust. The names of DNS
// endpoints are Google's alone.
func TestClusterByAddressAlone(t *testing.T) {
	w := newEnvironment(t)
	for _, address := range []string{"https://attacker.example", "https://10.0.0.2", "https://gke.goog",
		"https://" + dnsEndpoint + ".evil.example",
		"https://evilgke.goog", "https://" + dnsEndpoint + ":8443", "https://" + dnsEndpoint + "/path"} {
		_, err := w.config(t, "tenant-a", "", address, "")
		testenv.CheckError(t, err, auth.ErrMisconfigured, "certificate authority", "does not identify")
	}
	config, err := w.config(t, "tenant-a", "", "https://"+dnsEndpoint, "")
	if err != nil || config.Host() != "https://"+dnsEndpoint+":443" || len(config.CAData()) != 0 {
		t.Errorf("got %v, %v", config, err)
	}
	_,
		err = (&gcp.Provider{UniverseDomain: "s3nsapis.fr"}).GetAccessTokenOptionsForCluster(
		&provider.Options{ClusterAddress: "https://" + dnsEndpoint + ":443"})
	testenv.CheckError(t, err, auth.ErrMisconfigured, dnsEndpoint)
}

func TestClusterErrors(t *testing.T) {
	w := newEnvironment(t)
	ca := w.Cloud.CA()
	_, err := w.config(t, "tenant-a", clusterName, "", "")
	testenv.CheckError(t, err, auth.ErrMisconfigured, "NOT_FOUND", "correct the name", clusterName)
	for name, tc := range map[string]struct {
		cluster cloudtest.GKECluster
		address string
		reason  provider.Reason
		want    string
	}{
		"being created": {cloudtest.GKECluster{Status: "PROVISIONING"}, "", auth.ErrUnavailable, "creating it"},
		"created with address": {cloudtest.GKECluster{Status: "PROVISIONING", PublicEndpoint: "34.1.2.3", CA: ca}, "",
			auth.ErrUnavailable, "creating it"},
		"no endpoint": {cloudtest.GKECluster{Status: "ERROR"}, "", auth.ErrUnavailable, `"ERROR"`},
		"no CA": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3"}, "", auth.ErrUnavailable,
			"certificate authority"},
		"CA that is no PEM": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", CA: []byte("x")}, "", auth.ErrUnavailable,
			"not PEM"},
		"CA that is no base64": {
			cloudtest.GKECluster{Body: `{"endpoint":"34.1.2.3","masterAuth":{"clusterCaCertificate":"%"}}`}, "",
			auth.ErrUnavailable, "not PEM"},
		"another's address": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", DNSEndpoint: dnsEndpoint, CA: ca},
			"https://34.1.2.4", auth.ErrMisconfigured, "https://34.1.2.3:443"},
		"another port": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", CA: ca}, "https://34.1.2.3:6443",
			auth.ErrMisconfigured, "not one of its addresses"},
		"path in an endpoint": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3/x", CA: ca}, "", auth.ErrUnavailable,
			"malformed endpoint"},
		"user in an endpoint": {cloudtest.GKECluster{PublicEndpoint: "a@34.1.2.3", CA: ca}, "", auth.ErrUnavailable,
			"malformed endpoint"},
		"no right to see it": {cloudtest.GKECluster{PublicEndpoint: "34.1.2.3", CA: ca,
			Viewers: []string{"serviceAccount:x"}}, "", auth.ErrDenied, "roles/container.clusterViewer"},
		"HTML":  {cloudtest.GKECluster{Body: "<html>"}, "", auth.ErrUnavailable, "JSON object"},
		"empty": {cloudtest.GKECluster{Body: "{}"}, "", auth.ErrUnavailable, "no endpoint"},
		"null":  {cloudtest.GKECluster{Body: "null"}, "", auth.ErrUnavailable, "no endpoint"},
		"10 MB": {cloudtest.GKECluster{Body: strings.Repeat(" ", 10<<20)}, "", auth.ErrUnavailable,
			"larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			w.setCluster(tc.cluster)
			_, err := w.config(t, "tenant-a", clusterName, tc.address, "")
			testenv.CheckError(t, err, tc.reason, tc.want, "gcp: ")
		})
	}
	defer w.Cloud.AddFault(cloudtest.Fault{Service: "container", Redirect: "https://evil.example/"})()
	_, err = w.config(t, "tenant-a", clusterName, "", "")
	testenv.CheckError(t, err, auth.ErrUnavailable, "redirect")
}

func TestClusterNames(t *testing.T) {
	p := &gcp.Provider{}
	for name, ok := range map[string]bool{
		clusterName: true,
		"projects/example.com:project/locations/europe-west1-b/clusters/c": true,
		"projects/123/locations/us-central1/clusters/c-1":                  true,
		"projects/project/locations/global/memberships/1-prod":             true,
		"projects/project/locations/europe-west1/memberships/prod":         true,
		"projects/project/locations/global/memberships/Prod":               false,
		"projects/project/locations/global/gkeMemberships/prod":            false,
		"projects/project/zones/europe-west1-b/clusters/prod":              false,
		"projects/project/locations/europe-west1/clusters/":                false,
		"projects//locations/europe-west1/clusters/prod":                   false,
		"/" + clusterName:    false,
		clusterName + "/":    false,
		clusterName + "/x":   false,
		clusterName + "?a=b": false,
		clusterName + ":x":   false,
		"projects/project/locations/europe-west1/clusters/../../../x":       false,
		"projects/project/locations/europe-west1/clusters/..":               false,
		"projects/a%2fb/locations/europe-west1/clusters/prod":               false,
		"projects/project/locations/EUROPE/clusters/prod":                   false,
		"//container.googleapis.com/" + clusterName:                         false,
		"arn:aws:eks:eu-west-1:123456789012:cluster/prod":                   false,
		"projects/project/locations/europe-west1/clusters/" + longName("a"): false,
	} {
		access, err := p.GetAccessTokenOptionsForCluster(&provider.Options{ClusterResource: name})
		if ok && (err != nil || len(access.AccessTokens) != 1) {
			t.Errorf("%q: %v", name, err)
		}
		if !ok {
			testenv.CheckError(t, err, auth.ErrMisconfigured, "projects/<project>/locations/<location>/clusters/<cluster>")
		}
	}
	_, err := p.NewRESTConfig(t.Context(), []auth.Token{&gcp.IDToken{}}, &provider.Options{ClusterResource: clusterName})
	testenv.CheckError(t, err, auth.ErrMisconfigured, "*gcp.IDToken")
}

func longName(s string) string { return strings.Repeat(s, 100) }
