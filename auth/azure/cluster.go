package azure

import (
	"context"
	"slices"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/azurename"
)

const opCluster = "get access to the cluster"

// GetAccessTokenOptionsForCluster returns the scope of AKS and, for a cluster
// by its name, the scope of the cloud's Azure Resource Manager. A call without
// the name needs address and certificate authority.
func (p *Provider) GetAccessTokenOptionsForCluster(opts *provider.Options) (provider.ClusterAccess, error) {
	e, _, err := p.environmentOf(opts)
	if err != nil {
		return provider.ClusterAccess{}, err
	}
	if opts.ClusterResource == "" {
		if opts.ClusterAddress == "" || opts.CAData == "" {
			return provider.ClusterAccess{},
				self.Misconfigured("set the cluster's resource ID, or both its address and its certificate authority",
					"two of the cluster, its address and its certificate authority are needed")
		}
		return provider.ClusterAccess{AccessTokens: e.clusterScopes[:1:1]}, nil
	}
	if _, err := parseCluster(opts.ClusterResource); err != nil {
		return provider.ClusterAccess{}, err
	}
	if e.management == "" {
		return provider.ClusterAccess{}, self.Misconfigured(
			"describe the private cloud, or give address and CA of the cluster instead of its name",
			"the address of the Azure Resource Manager of %s is not known", e.name).About(optionClouds)
	}
	return provider.ClusterAccess{AccessTokens: slices.Clip(e.clusterScopes)}, nil
}

func parseCluster(id string) (azurename.Cluster, error) {
	cluster, ok := azurename.ParseCluster(id)
	if !ok {
		return cluster, self.Misconfigured(
			"use /subscriptions/<GUID>/resourceGroups/<name>/providers/Microsoft.ContainerService/managedClusters/<name>",
			"%.300q is not the resource ID of an AKS cluster", id)
	}
	return cluster, nil
}

// NewRESTConfig returns access to an AKS cluster with Microsoft Entra
// integration. The bearer token is the access token for AKS.
func (p *Provider) NewRESTConfig(ctx context.Context, accessTokens []auth.Token,
	opts *provider.Options) (*auth.RESTConfig, error) {
	token, err := FromToken(accessTokens[0])
	if err != nil {
		return nil, err
	}
	host, ca := opts.ClusterAddress, []byte(opts.CAData)
	if opts.ClusterResource != "" {
		forManagement, err := FromToken(accessTokens[1])
		if err != nil {
			return nil, err
		}
		found, err := p.findCluster(ctx, forManagement, opts)
		if err != nil {
			return nil, err
		}
		if host, err = found.choose(opts.ClusterAddress); err != nil {
			return nil, err
		}
		if len(ca) == 0 {
			ca = found.ca
		}
		if len(ca) == 0 {
			return nil, notReady(opts.ClusterResource, "it has no certificate authority yet")
		}
	}
	return provider.NewRESTConfig(host, token.accessToken.Reveal(), ca, token.expiresAt), nil
}

// foundCluster is a cluster as Azure Resource Manager describes it.
type foundCluster struct {
	id        string
	addresses []string // canonical; the first is the default
	ca        []byte
}

// choose implements the rule of RFC-0010, "API Changes": a given address has to
// be one of the cluster's.
func (c *foundCluster) choose(address string) (string, error) {
	if address == "" {
		return c.addresses[0], nil
	}
	if !slices.Contains(c.addresses, address) {
		return "", self.Misconfigured("use one of them, or leave the address out",
			"the address %.300q is not one of those of the cluster %q: %.600q", address, c.id, c.addresses)
	}
	return address, nil
}

func notReady(id, why string) error {
	return self.Unavailable(opCluster, "wait until it has been created", "the cluster %q is not ready: %s", id, why)
}
