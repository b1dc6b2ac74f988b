package token

import (
	"context"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// GetAccessTokenOptionsForCluster implements [provider.RESTConfigProvider]: one
// token, whose audience is the caller's or the cluster's address.
//
// A token with the default audience goes to this address only, and only to a
// server that the system's roots trust there.
func (*Provider) GetAccessTokenOptionsForCluster(opts *provider.Options) (provider.ClusterAccess, error) {
	switch {
	case opts.ClusterResource != "":
		return provider.ClusterAccess{}, self.Misconfigured("give its address instead",
			"this provider knows no clusters by name").About("auth.WithClusterAddress")
	case opts.ClusterAddress == "":
		return provider.ClusterAccess{},
			self.Misconfigured("set it", "the cluster's address is missing").About("auth.WithClusterAddress")
	}
	return provider.ClusterAccess{AccessTokens: make([][]provider.Option, 1),
		OneCluster: len(opts.Audiences) == 0 && opts.CAData == ""}, nil
}

// NewRESTConfig implements [provider.RESTConfigProvider]. The cluster has to
// accept the issuer of the ServiceAccount's token.
func (*Provider) NewRESTConfig(_ context.Context, accessTokens []auth.Token,
	opts *provider.Options) (*auth.RESTConfig, error) {
	token, err := FromToken(accessTokens[0])
	if err != nil {
		return nil, err
	}
	return provider.NewRESTConfig(opts.ClusterAddress, token.Reveal(), []byte(opts.CAData), token.ExpiresAt()), nil
}
