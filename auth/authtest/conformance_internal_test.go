package authtest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/provider"
)

// describer answers with the next access and with the audiences that audiences
// returns.
type describer struct {
	provider.RESTConfigProvider
	answers   []provider.ClusterAccess
	audiences func(*provider.Options) []string
}

func (d *describer) GetAccessTokenOptionsForCluster(*provider.Options) (provider.ClusterAccess, error) {
	access := d.answers[0]
	d.answers = append(d.answers[1:], access)
	return access, nil
}

func (d *describer) GetAudiences(_ context.Context, _ *corev1.ServiceAccount,
	opts *provider.Options) ([]string, error) {
	return d.audiences(opts), nil
}

// The suite fails providers whose ClusterAccess would break the cache or the
// Policy.
func TestCheckClusterAccess(t *testing.T) {
	tokens := make([][]provider.Option, 1)
	fixed := func(*provider.Options) []string { return []string{"cloud"} }
	address := func(opts *provider.Options) []string { return []string{opts.ClusterAddress} }
	for name, tc := range map[string]struct {
		answers   []provider.ClusterAccess
		audiences func(*provider.Options) []string
		ok        bool
	}{
		"any cluster": {[]provider.ClusterAccess{{AccessTokens: tokens}}, fixed, true},
		"one cluster, its audience": {[]provider.ClusterAccess{{AccessTokens: tokens, OneCluster: true}},
			address, true},
		"one cluster, the cloud's audience": {[]provider.ClusterAccess{{AccessTokens: tokens, OneCluster: true}},
			fixed, false},
		"no access token": {[]provider.ClusterAccess{{}}, fixed, false},
		"another key each time": {[]provider.ClusterAccess{{AccessTokens: tokens, CacheKey: "a"},
			{AccessTokens: tokens, CacheKey: "b"}}, fixed, false},
		"another rule each time": {[]provider.ClusterAccess{{AccessTokens: tokens, TakesAll: true},
			{AccessTokens: tokens}}, fixed, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &describer{answers: tc.answers, audiences: tc.audiences}
			err := checkClusterAccess(t.Context(), p, &corev1.ServiceAccount{},
				provider.Options{ClusterAddress: "https://one.example:6443"})
			if (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
