package main

import (
	"context"

	fluxauth "github.com/fluxcd/pkg/auth"
	fluxaws "github.com/fluxcd/pkg/auth/aws"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
)

func hitRESTConfig(w *environment, p plan) (result, error) {
	ours, theirs, end, err := caches(cacheSize)
	if err != nil {
		return result{}, err
	}
	defer end()
	w.cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: clusterARN,
		Endpoint: "https://0123456789ABCDEF.gr7." + region + ".eks.amazonaws.com",
		CA:       w.cloud.CA()})
	t := w.tenant("tenant-a", true)
	provider := &aws.Provider{}
	o, f := w.ours(ours, t, auth.WithClusterResource(clusterARN)),
		w.theirs(theirs, t, fluxauth.WithClusterResource(clusterARN))
	return hit(w, p, t,
		func(ctx context.Context) (*auth.RESTConfig, error) { return auth.GetRESTConfig(ctx, provider, o...) },
		func(ctx context.Context) (*fluxauth.RESTConfig, error) {
			return fluxauth.GetRESTConfig(ctx, fluxaws.Provider{}, f...)
		})
}
