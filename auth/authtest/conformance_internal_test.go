package authtest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
)

// describer answers with the next access and with the audiences that audiences returns.
type describer struct {
	auth.RESTConfigProvider
	answers   []auth.ClusterAccess
	audiences func(*auth.Options) []string
}

func (d *describer) GetAccessTokenOptionsForCluster(*auth.Options) (auth.ClusterAccess, error) {
	access := d.answers[0]
	d.answers = append(d.answers[1:], access)
	return access, nil
}

func (d *describer) GetAudiences(_ context.Context, _ *corev1.ServiceAccount, opts *auth.Options) ([]string, error) {
	return d.audiences(opts), nil
}

// The suite fails providers whose ClusterAccess would break the cache or the Policy.
func TestCheckClusterAccess(t *testing.T) {
	tokens := make([][]auth.Option, 1)
	fixed := func(*auth.Options) []string { return []string{"cloud"} }
	address := func(opts *auth.Options) []string { return []string{opts.ClusterAddress} }
	for name, tc := range map[string]struct {
		answers   []auth.ClusterAccess
		audiences func(*auth.Options) []string
		ok        bool
	}{
		"any cluster":                       {[]auth.ClusterAccess{{AccessTokens: tokens}}, fixed, true},
		"one cluster, its audience":         {[]auth.ClusterAccess{{AccessTokens: tokens, OneCluster: true}}, address, true},
		"one cluster, the cloud's audience": {[]auth.ClusterAccess{{AccessTokens: tokens, OneCluster: true}}, fixed, false},
		"no access token":                   {[]auth.ClusterAccess{{}}, fixed, false},
		"another key each time":             {[]auth.ClusterAccess{{AccessTokens: tokens, CacheKey: "a"}, {AccessTokens: tokens, CacheKey: "b"}}, fixed, false},
		"another rule each time":            {[]auth.ClusterAccess{{AccessTokens: tokens, TakesAll: true}, {AccessTokens: tokens}}, fixed, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &describer{answers: tc.answers, audiences: tc.audiences}
			err := checkClusterAccess(t.Context(), p, &corev1.ServiceAccount{}, auth.Options{ClusterAddress: "https://one.example:6443"})
			if (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
