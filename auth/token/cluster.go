package token

import (
	"context"

	"github.com/workloadid/workloadid/auth"
)

// GetAccessTokenOptionsForCluster implements auth.RESTConfigProvider: one token, whose audience is the caller's or the
// cluster's address.
func (*Provider) GetAccessTokenOptionsForCluster(opts *auth.Options) ([][]auth.Option, error) {
	switch {
	case opts.ClusterResource != "":
		return nil, self.Misconfigured("pass WithClusterAddress instead of WithClusterResource",
			"this provider knows no clusters by name")
	case opts.ClusterAddress == "":
		return nil, self.Misconfigured("pass WithClusterAddress", "the cluster's address is missing")
	}
	return make([][]auth.Option, 1), nil
}

// IsClusterBound implements auth.ClusterBoundProvider: with its default audience a token is for that address only, and only
// who the system's roots say is there gets it.
func (*Provider) IsClusterBound(opts *auth.Options) bool {
	return len(opts.Audiences) == 0 && opts.ClusterAddress != "" && opts.CAData == ""
}

// NewRESTConfig implements auth.RESTConfigProvider. The cluster has to accept the issuer of the ServiceAccount's token.
func (*Provider) NewRESTConfig(_ context.Context, accessTokens []auth.Token, opts *auth.Options) (*auth.RESTConfig, error) {
	if len(accessTokens) != 1 {
		return nil, self.Misconfigured("", "there has to be one access token")
	}
	token, err := FromToken(accessTokens[0])
	if err != nil {
		return nil, err
	}
	return auth.NewRESTConfig(opts.ClusterAddress, token.Reveal(), []byte(opts.CAData), token.ExpiresAt()), nil
}
