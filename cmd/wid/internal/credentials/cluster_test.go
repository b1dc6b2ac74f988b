package credentials

import (
	"testing"

	"github.com/workloadid/workloadid/auth"
)

// Wid's own identity is used for the cluster that the flags name, not for one that only the kubeconfig names.
func TestAllowsCluster(t *testing.T) {
	const there = "https://prod.example:443"
	for name, tc := range map[string]struct {
		flags target
		asked auth.ClusterRequest
		want  bool
	}{
		"no flag":                    {target{}, auth.ClusterRequest{Address: there}, false},
		"its resource":               {target{resource: "c"}, auth.ClusterRequest{Resource: "c"}, true},
		"its resource, with address": {target{resource: "c"}, auth.ClusterRequest{Resource: "c", Address: there}, true},
		"its resource, with CA":      {target{resource: "c"}, auth.ClusterRequest{Resource: "c", CAFromObject: true}, true},
		"its resource, with all":     {target{resource: "c"}, auth.ClusterRequest{Resource: "c", Address: there, CAFromObject: true}, false},
		"another resource":           {target{resource: "c"}, auth.ClusterRequest{Resource: "d"}, false},
		"its address":                {target{address: "https://Prod.example"}, auth.ClusterRequest{Address: there, CAFromObject: true}, true},
		"another address":            {target{address: "https://x.example"}, auth.ClusterRequest{Address: there}, false},
		"address only asked":         {target{resource: "c"}, auth.ClusterRequest{Address: there}, false},
	} {
		t.Run(name, func(t *testing.T) {
			id := &Identity{cluster: tc.flags}
			if got := id.allowsCluster(tc.asked); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
