package install

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// What an address proves is refused, with the reason. What it does not prove is a warning.
func TestSupportMatrixIsEnforced(t *testing.T) {
	const onEKS, elsewhere = "https://ab.gr7.eu-central-1.eks.amazonaws.com", "https://hub.example:6443"
	hub := func(server string, authTypes ...string) func(*cobra.Command) error {
		return func(cmd *cobra.Command) error { return CheckHub(cmd, authTypes, server) }
	}
	managed := func(server, authType string) func(*cobra.Command) error {
		return func(cmd *cobra.Command) error { CheckManaged(cmd, authType, server); return nil }
	}
	for name, tc := range map[string]struct {
		check          func(*cobra.Command) error
		refuses, warns string
	}{
		"csr on EKS":                             {hub(onEKS, "csr"), "EKS signs none", ""},
		"csr elsewhere":                          {hub(elsewhere, "csr"), "", ""},
		"aws-irsa on EKS":                        {hub(onEKS, "aws-irsa"), "", ""},
		"aws-irsa alone elsewhere":               {hub(elsewhere, "aws-irsa"), "", `alone needs a hub on EKS, which checks tokens of AWS itself: on other hubs use it together with "csr"`},
		"both on EKS":                            {hub(onEKS, "csr", "aws-irsa"), "EKS signs none", ""},
		"both elsewhere":                         {hub(elsewhere, "csr", "aws-irsa"), "", "needs an authentication webhook for tokens of AWS"},
		"managed cluster on EKS":                 {managed(onEKS, "aws-irsa"), "", ""},
		"managed cluster elsewhere":              {managed(elsewhere, "aws-irsa"), "", "needs a managed cluster on EKS, since its ARN names it"},
		"managed cluster elsewhere that has csr": {managed(elsewhere, "csr"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			cmd := &cobra.Command{}
			cmd.SetErr(&said)
			err := tc.check(cmd)
			if (err != nil) != (tc.refuses != "") || err != nil && !strings.Contains(err.Error(), tc.refuses) {
				t.Errorf("got %v, want %q", err, tc.refuses)
			}
			if (said.Len() > 0) != (tc.warns != "") || !strings.Contains(said.String(), tc.warns) {
				t.Errorf("warns %q, want %q", said.String(), tc.warns)
			}
		})
	}
}

func TestIsEKS(t *testing.T) {
	for server, want := range map[string]bool{
		"https://AB.gr7.eu-central-1.eks.amazonaws.com":       true,
		"https://ab.sk1.cn-north-1.eks.amazonaws.com.cn":      true,
		"https://ab.gr7.eu-central-1.eks.amazonaws.com:443/x": true,
		"https://ab.eks-cluster.eu-central-1.api.aws":         true,
		"https://hub.example:6443":                            false,
		"https://hub.example/.eks.amazonaws.com":              false,
		"https://x.eks.amazonaws.com.attacker.example":        false,
		"::": false,
	} {
		if got := IsEKS(server); got != want {
			t.Errorf("isEKS(%q) = %t", server, got)
		}
	}
}
