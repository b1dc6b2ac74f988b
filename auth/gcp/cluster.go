package gcp

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/transport"
)

var _ provider.RESTConfigProvider = (*Provider)(nil)

const opCluster = "get the GKE cluster"

// GetAccessTokenOptionsForCluster asks for one access token, for GKE's API and
// for the cluster. Without the cluster's name, a call needs its address and CA,
// its DNS endpoint, or its address at the Connect Gateway.
func (p *Provider) GetAccessTokenOptionsForCluster(opts *provider.Options) (provider.ClusterAccess, error) {
	name, address := opts.ClusterResource, opts.ClusterAddress
	gateway, err := p.isConnectGateway(address)
	if err != nil {
		return provider.ClusterAccess{}, err
	}
	if name == "" && (address == "" || opts.CAData == "" && !gateway && !p.isDNSEndpoint(address)) {
		return provider.ClusterAccess{},
			self.Misconfigured("set the cluster's full name, or both its address and its certificate authority",
				"the address %.300q alone does not identify a cluster of GKE", address)
	}
	if name != "" {
		if err := checkClusterName(name); err != nil {
			return provider.ClusterAccess{}, self.Misconfigured("use projects/<project>/locations/<location>/clusters/<cluster>"+
				" or …/memberships/<membership>", "%.300q is not the name of a GKE cluster: %v", name, err)
		}
	}
	return provider.ClusterAccess{AccessTokens: [][]provider.Option{nil}}, nil
}

// isDNSEndpoint recognizes DNS endpoints of Google's own universe. The names of
// other universes are unknown.
func (p *Provider) isDNSEndpoint(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Path == "" && (u.Port() == "" || u.Port() == "443") && gcpname.IsDNSEndpoint(u.Hostname()) &&
		p.universe() == gcpname.DefaultUniverse
}

// checkClusterName accepts
// projects/<project>/locations/<location>/clusters/<cluster>, and a membership
// of a fleet, projects/<project>/locations/<location>/memberships/<membership>.
func checkClusterName(name string) error {
	var parts [6]string
	rest, found := name, true
	for i := range parts {
		if !found {
			return errors.New("it does not have that form")
		}
		parts[i], rest, found = strings.Cut(rest, "/")
	}
	switch {
	case !found && parts[2] == "zones":
		return errors.New("zones are locations now")
	case found || parts[0] != "projects" || parts[2] != "locations" ||
		parts[4] != "clusters" && parts[4] != memberships:
		return errors.New("it does not have that form")
	case !gcpname.ValidProject(parts[1]):
		return fmt.Errorf("%.100q is not a project", parts[1])
	case !gcpname.ValidLocation(parts[3]):
		return fmt.Errorf("%.100q is not a region or a zone", parts[3])
	case parts[4] == memberships && !gcpname.ValidMembership(parts[5]):
		return fmt.Errorf("%.100q cannot be the name of a membership", parts[5])
	case parts[4] == "clusters" && !gcpname.ValidClusterName(parts[5]):
		return fmt.Errorf("%.100q cannot be the name of a cluster", parts[5])
	}
	return nil
}

// NewRESTConfig returns access to a GKE cluster. It prefers the public
// endpoint, then the private one, then the DNS endpoint. A public CA signs the
// certificate of the DNS endpoint, the cluster's own CA signs the others. It
// reaches a membership of a fleet through the Connect Gateway, whose
// certificate a public CA signs.
func (p *Provider) NewRESTConfig(ctx context.Context, accessTokens []auth.Token, opts *provider.Options,
) (*auth.RESTConfig, error) {
	token, err := FromToken(accessTokens[0])
	if err != nil {
		return nil, err
	}
	if opts.ClusterResource == "" {
		return provider.NewRESTConfig(opts.ClusterAddress, token.AccessToken(), []byte(opts.CAData), token.ExpiresAt()), nil
	}
	if strings.Contains(opts.ClusterResource, "/"+memberships+"/") {
		return p.newGatewayConfig(ctx, token, opts)
	}
	cluster, err := p.describeCluster(ctx, token, opts)
	if err != nil {
		return nil, err
	}
	endpoint, err := cluster.choose(opts.ClusterAddress)
	if err != nil {
		return nil, err
	}
	ca := []byte(opts.CAData)
	if len(ca) == 0 && !endpoint.publicCA {
		if ca, err = cluster.certificates(); err != nil {
			return nil, err
		}
	}
	return provider.NewRESTConfig(endpoint.address, token.AccessToken(), ca, token.ExpiresAt()), nil
}

// describeCluster calls projects.locations.clusters.get of the Kubernetes
// Engine API, v1.
func (p *Provider) describeCluster(ctx context.Context, token *Token, opts *provider.Options) (*clusterAnswer, error) {
	cluster := &clusterAnswer{name: opts.ClusterResource}
	return cluster, p.get(ctx, token, opts, "container", "v1/"+cluster.name+"?fields="+url.QueryEscape(clusterFields),
		remedies{forbidden: "grant roles/container.clusterViewer in the cluster's project to the identity",
			notFound: "correct the name of the cluster, or create it"}, cluster)
}

// remedies belong to statuses of an answer.
type remedies struct{ forbidden, notFound string }

// get reads a resource of an API of Google Cloud.
func (p *Provider) get(ctx context.Context, token *Token, opts *provider.Options, api, path string, r remedies,
	into any) error {
	answer, err := transport.JSONRequest{Method: http.MethodGet, Bearer: token.AccessToken(),
		URL: "https://" + api + "." + p.universe() + "/" + path}.Send(ctx, p.clients.For(opts))
	switch {
	case err != nil:
		return self.Unanswered(opCluster, err, token.AccessToken())
	case answer.Status != http.StatusOK:
		return clusterError(answer, opts.ClusterResource, token.AccessToken(), r)
	}
	return decode(answer, opCluster, into)
}

func clusterError(answer transport.Answer, name, secret string, r remedies) *auth.Error {
	e, _ := classify(answer, opCluster, secret)
	e.Message = fmt.Sprintf("cluster %q: %s", name, e.Message)
	switch {
	case e.Remedy != "":
	case answer.Status == http.StatusForbidden:
		e.Remedy = r.forbidden
	case answer.Status == http.StatusNotFound:
		e.Remedy = r.notFound
	}
	return e
}

// clusterFields selects the fields of clusterAnswer, because node pools make up
// most of a large answer.
const clusterFields = "status,endpoint,masterAuth/clusterCaCertificate,privateClusterConfig(publicEndpoint,privateEndpoint)," +
	"controlPlaneEndpointsConfig(dnsEndpointConfig/endpoint,ipEndpointsConfig(enabled,publicEndpoint,privateEndpoint))"

// clusterAnswer holds the fields of the resource Cluster that decide the
// access.
type clusterAnswer struct {
	name string

	Status     string `json:"status"`
	Endpoint   string `json:"endpoint"`
	MasterAuth struct {
		CA string `json:"clusterCaCertificate"`
	} `json:"masterAuth"`
	Private struct {
		PublicEndpoint  string `json:"publicEndpoint"`
		PrivateEndpoint string `json:"privateEndpoint"`
	} `json:"privateClusterConfig"`
	Endpoints struct {
		DNS struct {
			Endpoint string `json:"endpoint"`
		} `json:"dnsEndpointConfig"`
		IP struct {
			Enabled         *bool  `json:"enabled"`
			PublicEndpoint  string `json:"publicEndpoint"`
			PrivateEndpoint string `json:"privateEndpoint"`
		} `json:"ipEndpointsConfig"`
	} `json:"controlPlaneEndpointsConfig"`
}

// endpoint is one of the addresses of a cluster's API server.
type endpoint struct {
	address  string // canonical
	publicCA bool
}

// choose implements the rule of RFC-0010, "API Changes": a given address has to
// be one of the cluster's addresses.
func (c *clusterAnswer) choose(address string) (endpoint, error) {
	if c.Status == "PROVISIONING" {
		return endpoint{}, self.Unavailable(opCluster, "wait until it runs", "cluster %q: GKE is creating it", c.name)
	}
	endpoints, err := c.endpoints()
	if err != nil {
		return endpoint{}, err
	}
	if len(endpoints) == 0 {
		return endpoint{}, self.Unavailable(opCluster, "check its status in the console",
			"cluster %q: it has no endpoint; its status is %.50q", c.name, c.Status)
	}
	if address == "" {
		return endpoints[0], nil
	}
	var known []string
	for _, e := range endpoints {
		if e.address == address {
			return e, nil
		}
		known = append(known, e.address)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	return endpoint{}, self.Misconfigured("use one of "+strings.Join(known, ", ")+", or leave the address out",
		"cluster %q: %.300q is not one of its addresses", c.name, address)
}

// endpoints returns all endpoints in the order of preference, some of them
// twice. The fields that only older clusters have come last.
func (c *clusterAnswer) endpoints() ([]endpoint, error) {
	var hosts []string
	if ip := c.Endpoints.IP; ip.Enabled == nil || *ip.Enabled {
		hosts = []string{ip.PublicEndpoint, c.Private.PublicEndpoint, c.legacyPublic(), ip.PrivateEndpoint,
			c.Private.PrivateEndpoint, c.Endpoint}
	}
	var all []endpoint
	for i, host := range append(hosts, c.Endpoints.DNS.Endpoint) {
		if host == "" {
			continue
		}
		address, err := provider.ParseClusterAddress("https://" + host)
		if err != nil || strings.Contains(host, "/") {
			return nil, self.Unusable(opCluster, service, "cluster %q has the malformed endpoint %.100q", c.name, host)
		}
		all = append(all, endpoint{address: address, publicCA: i == len(hosts)})
	}
	return all, nil
}

// legacyPublic returns the field endpoint unless it holds the private one.
func (c *clusterAnswer) legacyPublic() string {
	if c.Endpoint == c.Private.PrivateEndpoint || c.Endpoint == c.Endpoints.IP.PrivateEndpoint {
		return ""
	}
	return c.Endpoint
}

// certificates returns the cluster's own CA in PEM.
func (c *clusterAnswer) certificates() ([]byte, error) {
	if c.MasterAuth.CA == "" {
		return nil, self.Unavailable(opCluster,
			"use the cluster's DNS endpoint, or give address and certificate authority yourself",
			"cluster %q: GKE does not return its certificate authority", c.name)
	}
	ca, err := base64.StdEncoding.DecodeString(c.MasterAuth.CA)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return nil, self.Unusable(opCluster, service, "the certificate authority of cluster %q is not PEM", c.name)
	}
	return ca, nil
}
