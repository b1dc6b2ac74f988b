package gcp

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/transport"
)

var _ auth.RESTConfigProvider = (*Provider)(nil)

const opCluster = "get the GKE cluster"

// GetAccessTokenOptionsForCluster wants one access token: GKE's API and the cluster's own take the same. Without the
// cluster's name, address and certificate authority have to be given, or its DNS endpoint alone.
func (p *Provider) GetAccessTokenOptionsForCluster(opts *auth.Options) (auth.ClusterAccess, error) {
	name, address := opts.ClusterResource, opts.ClusterAddress
	if name == "" && (address == "" || opts.CAData == "" && !p.isDNSEndpoint(address)) {
		return auth.ClusterAccess{}, self.Misconfigured("set the cluster's full name, or both its address and its certificate authority",
			"the address %.300q alone does not tell that a cluster of GKE is there: anybody gets a public certificate", address)
	}
	if name != "" {
		if err := checkClusterName(name); err != nil {
			return auth.ClusterAccess{}, self.Misconfigured("use projects/<project>/locations/<location>/clusters/<cluster>",
				"%.300q is not the name of a GKE cluster: %v", name, err)
		}
	}
	return auth.ClusterAccess{AccessTokens: [][]auth.Option{nil}}, nil
}

// isDNSEndpoint knows addresses that are Google's by their name. Those of other universes are not known.
func (p *Provider) isDNSEndpoint(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Path == "" && (u.Port() == "" || u.Port() == "443") && gcpname.IsDNSEndpoint(u.Hostname()) &&
		p.universe() == gcpname.DefaultUniverse
}

// checkClusterName accepts projects/<project>/locations/<location>/clusters/<cluster>.
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
	case found || parts[0] != "projects" || parts[2] != "locations" || parts[4] != "clusters":
		return errors.New("it does not have that form")
	case !gcpname.ValidProject(parts[1]):
		return fmt.Errorf("%.100q is not a project", parts[1])
	case !gcpname.ValidLocation(parts[3]):
		return fmt.Errorf("%.100q is not a region or a zone", parts[3])
	case !gcpname.ValidClusterName(parts[5]):
		return fmt.Errorf("%.100q cannot be the name of a cluster", parts[5])
	}
	return nil
}

// NewRESTConfig returns access to a GKE cluster. Its addresses are, in this order, the public, the private and the DNS
// endpoint. The certificate of a DNS endpoint is from a public authority, those of the others are from the cluster's own.
func (p *Provider) NewRESTConfig(ctx context.Context, accessTokens []auth.Token, opts *auth.Options,
) (*auth.RESTConfig, error) {
	if len(accessTokens) != 1 {
		return nil, self.Misconfigured("pass those of GetAccessTokenOptionsForCluster",
			"there are %d access tokens instead of one", len(accessTokens))
	}
	token, err := FromToken(accessTokens[0])
	if err != nil {
		return nil, err
	}
	if _, err := p.GetAccessTokenOptionsForCluster(opts); err != nil {
		return nil, err
	}
	if opts.ClusterResource == "" {
		return auth.NewRESTConfig(opts.ClusterAddress, token.AccessToken(), []byte(opts.CAData), token.ExpiresAt()), nil
	}
	cluster, err := p.describeCluster(ctx, token, opts)
	if err != nil {
		return nil, err
	}
	endpoint, err := cluster.pick(opts.ClusterAddress)
	if err != nil {
		return nil, err
	}
	ca := []byte(opts.CAData)
	if len(ca) == 0 && !endpoint.publicCA {
		if ca, err = cluster.certificates(); err != nil {
			return nil, err
		}
	}
	return auth.NewRESTConfig(endpoint.address, token.AccessToken(), ca, token.ExpiresAt()), nil
}

// describeCluster calls projects.locations.clusters.get of the Kubernetes Engine API, v1.
func (p *Provider) describeCluster(ctx context.Context, token *Token, opts *auth.Options) (*clusterAnswer, error) {
	client, err := self.HTTPClient(&p.transports, opts)
	if err != nil {
		return nil, err
	}
	address := "https://container." + p.universe() + "/v1/" + opts.ClusterResource
	answer, err := transport.Send(ctx, client, func() (*http.Request, error) {
		return newRequest(ctx, http.MethodGet, address, "", "", token.AccessToken())
	}, nil)
	if err != nil {
		return nil, unreachable(opCluster, err, token.AccessToken())
	}
	if answer.Status != http.StatusOK {
		return nil, clusterError(answer, opts.ClusterResource, token)
	}
	cluster := &clusterAnswer{name: opts.ClusterResource}
	if json.Unmarshal(answer.Body, cluster) != nil {
		return nil, unusable(opCluster, "it is not the JSON that it should be")
	}
	return cluster, nil
}

func clusterError(answer transport.Answer, name string, token *Token) *auth.Error {
	e, _ := classify(opCluster, answer, token.AccessToken())
	e.Message = fmt.Sprintf("cluster %q: %s", name, e.Message)
	switch {
	case e.Remedy != "":
	case answer.Status == http.StatusForbidden:
		e.Remedy = "grant roles/container.clusterViewer in the cluster's project to the identity"
	case answer.Status == http.StatusNotFound:
		e.Remedy = "correct the name of the cluster, or create it"
	}
	return e
}

// clusterAnswer is what is used of the resource Cluster.
type clusterAnswer struct {
	name string

	Status     string `json:"status"`
	Endpoint   string `json:"endpoint"`
	MasterAuth *struct {
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

func (c *clusterAnswer) pick(address string) (endpoint, error) {
	if c.Status == "PROVISIONING" {
		return endpoint{}, self.Unavailable(opCluster, "wait until it runs", "cluster %q: it is still being created", c.name)
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
	return endpoint{}, self.Misconfigured("use one of "+strings.Join(known, ", ")+", or leave the address out",
		"cluster %q: %.300q is not one of its addresses", c.name, address)
}

// endpoints returns what there is, in the order of preference. The fields of older clusters come after those that took
// their place.
func (c *clusterAnswer) endpoints() ([]endpoint, error) {
	var all []endpoint
	if ip := c.Endpoints.IP; ip.Enabled == nil || *ip.Enabled {
		for _, host := range []string{ip.PublicEndpoint, c.Private.PublicEndpoint, c.legacyPublic(), ip.PrivateEndpoint,
			c.Private.PrivateEndpoint, c.Endpoint} {
			if host == "" {
				continue
			}
			address, err := c.canonical(host)
			if err != nil {
				return nil, err
			}
			all = appendNew(all, endpoint{address: address})
		}
	}
	if host := c.Endpoints.DNS.Endpoint; host != "" {
		// Nothing but its name tells whose it is: the system's roots trust certificates of anybody's.
		if !gcpname.IsDNSEndpoint(strings.ToLower(host)) {
			return nil, c.badEndpoint(host)
		}
		address, err := c.canonical(host)
		if err != nil {
			return nil, err
		}
		all = appendNew(all, endpoint{address: address, publicCA: true})
	}
	return all, nil
}

// legacyPublic is the field endpoint where it is not known to be the private one.
func (c *clusterAnswer) legacyPublic() string {
	if c.Endpoint == c.Private.PrivateEndpoint || c.Endpoint == c.Endpoints.IP.PrivateEndpoint {
		return ""
	}
	return c.Endpoint
}

func appendNew(all []endpoint, e endpoint) []endpoint {
	for _, known := range all {
		if known.address == e.address {
			return all
		}
	}
	return append(all, e)
}

func (c *clusterAnswer) canonical(host string) (string, error) {
	address, err := auth.ParseClusterAddress("https://" + host)
	if err != nil {
		return "", c.badEndpoint(host)
	}
	// Only a host and a port have a place in the API's answer.
	if u, err := url.Parse(address); err != nil || u.Path != "" {
		return "", c.badEndpoint(host)
	}
	return address, nil
}

func (c *clusterAnswer) badEndpoint(host string) error {
	return unusable(opCluster, fmt.Sprintf("cluster %q has the endpoint %.100q, which is none", c.name, host))
}

// certificates returns the cluster's own authority in PEM.
func (c *clusterAnswer) certificates() ([]byte, error) {
	if c.MasterAuth == nil || c.MasterAuth.CA == "" {
		return nil, self.Unavailable(opCluster, "use the cluster's DNS endpoint, or give address and certificate authority yourself",
			"cluster %q: GKE's API does not tell its certificate authority", c.name)
	}
	ca, err := base64.StdEncoding.DecodeString(c.MasterAuth.CA)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return nil, unusable(opCluster, fmt.Sprintf("the certificate authority of cluster %q is not in PEM", c.name))
	}
	return ca, nil
}
