package credentials

import (
	"testing"

	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// Wid's own identity is used for the cluster that the flags name, not for one that only the kubeconfig names.
func TestClusterOfTheKubeconfig(t *testing.T) {
	const there = "https://prod.example:443"
	token := []string{"--token-file=x"}
	for name, tc := range map[string]struct {
		args    []string
		flags   target
		ca      string
		code    int // 0: allowed
		address string
		wantCA  string
	}{
		"own, no flag":             {nil, target{}, "", cli.ExitUsage, "", ""},
		"own, its resource":        {nil, target{resource: "c"}, "", 0, there, ""},
		"own, its resource and CA": {nil, target{resource: "c"}, "pem", cli.ExitUsage, "", ""},
		"own, all":                 {nil, target{resource: "c", address: there}, "pem", 0, there, "pem"},
		"own, its address":         {nil, target{address: "https://Prod.example"}, "", 0, "https://Prod.example", "kubeconfig"},
		"own, another address":     {nil, target{address: "https://x.example"}, "", cli.ExitDenied, "", ""},
		"token, no flag":           {token, target{}, "", cli.ExitDenied, "", ""},
		"token, CA":                {token, target{}, "pem", cli.ExitUsage, "", ""},
		"token, resource and CA":   {token, target{resource: "c"}, "pem", cli.ExitUsage, "", ""},
		"token, name":              {token, target{name: "c"}, "", 0, there, ""},
		"token, its address":       {token, target{address: there}, "", 0, there, "kubeconfig"},
		"token, another address":   {token, target{address: "https://x.example"}, "", cli.ExitDenied, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ca, err := parsed(t, tc.args...).checkCluster(&tc.flags, []byte(tc.ca), &plugin.ExecCluster{Server: there, CAData: []byte("kubeconfig")}, false)
			if tc.code != 0 {
				if err == nil || cli.ExitCode(t.Context(), err) != tc.code {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || tc.flags.address != tc.address || string(ca) != tc.wantCA {
				t.Errorf("got %q, %q, %v", tc.flags.address, ca, err)
			}
		})
	}
}
