package auth

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"strings"
)

const opCluster = "get access to the cluster"

// GetRESTConfig returns access to a remote Kubernetes cluster: the one that WithClusterResource names in the provider's API,
// or that is at WithClusterAddress. GetClusterConfig makes a rest.Config of client-go that renews itself.
//
//   - WithClusterResource alone: address and certificate authority come from the provider's API.
//   - With WithClusterAddress: the address has to be one of the cluster's.
//   - With WithCAData: the cluster's first address; the given certificates are trusted instead of the cluster's own.
//   - WithClusterAddress and WithCAData: the provider's API is not asked about the cluster. All three are refused, except by
//     EKS, whose credential needs the name and whose API is not asked either (ClusterAccess.TakesAll).
//   - The generic provider needs an address and takes no WithClusterResource.
//
// Without a ServiceAccount, Policy.AllowCluster has to allow the cluster for the owner of the call.
//
// The default ServiceAccount is that for remote clusters (Settings.DefaultKubeConfigServiceAccount). Policy, cache and
// errors are those of GetAccessToken. Access that is cached costs one look-up. It is safe for concurrent use.
func GetRESTConfig(ctx context.Context, provider Provider, opts ...Option) (*RESTConfig, error) {
	return getRESTConfig(ctx, provider, nil, opts)
}

func getRESTConfig(ctx context.Context, provider Provider, source *clusterSource, opts []Option) (*RESTConfig, error) {
	token, err := getDerived(ctx, provider, opCluster, clusterKind, "", source, opts)
	return as[*RESTConfig](token, err)
}

func (c *call) prepareCluster() error {
	p, ok := c.provider.(RESTConfigProvider)
	if !ok {
		return c.incapable("access to clusters")
	}
	if err := c.opts.resolveCluster(); err != nil {
		return err
	}
	access, err := p.GetAccessTokenOptionsForCluster(&c.opts)
	switch {
	case err != nil:
		return err
	case len(access.AccessTokens) == 0:
		return misconfigured("have GetAccessTokenOptionsForCluster return a list for each token", "the provider wants no access token")
	case !access.TakesAll && c.opts.ClusterResource != "" && c.opts.ClusterAddress != "" && c.opts.CAData != "":
		return misconfigured("leave one of them out", "the cluster, its address and its certificate authority are all set")
	}
	c.lists, c.input = access.AccessTokens, access.CacheKey
	if access.OneCluster {
		return nil
	}
	return c.checkCluster()
}

// checkCluster asks the Policy whether an object may use the controller's own identity for the cluster.
func (c *call) checkCluster() error {
	if !c.opts.LendsOwnIdentity() {
		return nil
	}
	return c.opts.Policy.checkCluster(&ClusterRequest{Owner: *c.opts.owner(), Resource: c.opts.ClusterResource,
		Address: c.opts.ClusterAddress, CAFromObject: c.opts.CAData != ""})
}

// resolveCluster checks that the options name a cluster, and the form of the CA data.
func (o *Options) resolveCluster() error {
	if o.ClusterResource == "" && o.ClusterAddress == "" {
		return misconfigured("set the cluster's full name in the provider's API, or its address",
			"neither the cluster nor its address is set")
	}
	if err := checkCASize(o.CAData); err != nil {
		return err
	}
	if o.CAData != "" && !strings.Contains(o.CAData, "-----BEGIN CERTIFICATE-----") {
		return noCertificate()
	}
	return nil
}

func noCertificate() error {
	return misconfigured("give the cluster's certificate authority in PEM", "the certificate authority data holds no PEM certificate")
}

// maxCAData bounds what a cached credential holds of an object's own, in bytes. Each edit of the object makes another one,
// which stays for up to an hour.
const maxCAData = 64 << 10

func checkCASize(data string) error {
	if len(data) <= maxCAData {
		return nil
	}
	return misconfigured("leave out what is not the cluster's certificate authority",
		"the certificate authority data has %d bytes, at most %d are allowed", len(data), maxCAData)
}

// checkCAData accepts certificates in PEM, as many as there are, and nothing else. Only what is minted is checked: parsing
// certificates costs more than all else about a hit of the cache.
func checkCAData(data string) error {
	if data == "" {
		return nil
	}
	if err := checkCASize(data); err != nil {
		return err
	}
	rest, n := []byte(data), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return misconfigured("leave out what is not a certificate", "the certificate authority data holds a PEM block of type %.50q", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return misconfigured("give the cluster's certificate authority in PEM", "certificate %d of the certificate authority data is malformed: %v", n+1, err)
		}
		n++
	}
	if n == 0 {
		return noCertificate()
	}
	return nil
}

func (m *minter) newRESTConfig(ctx context.Context) (Token, error) {
	p, ok := m.provider.(RESTConfigProvider)
	if !ok {
		return nil, m.incapable("access to clusters")
	}
	config, err := p.NewRESTConfig(ctx, m.tokens, &m.opts)
	if err != nil || config == nil {
		return nil, err
	}
	// Whatever a provider's API has answered: what is used is an https address.
	host, err := ParseClusterAddress(config.host)
	if err != nil {
		return nil, &Error{Reason: ErrUnavailable, Message: "the cluster's address cannot be used: " + err.Error(), Err: err}
	}
	if config.bearer.Reveal() == "" {
		return nil, &Error{Reason: ErrUnavailable, Message: "the provider gave no bearer token"}
	}
	return &RESTConfig{host: host, bearer: config.bearer, caData: config.caData, expiresAt: config.expiresAt}, nil
}
