package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/issuer"
)

// A cluster whose API server is its issuer, and grants tokens of any lifetime.
func TestIssuerCheck(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	ca, foreign := filepath.Join(w.home, "ca.crt"), filepath.Join(w.home, "foreign")
	w.write(t, ca, string(w.cluster.Config().CAData))
	w.write(t, foreign, w.jwt(t, "x"))
	for name, tc := range map[string]struct {
		args   []string
		code   int
		failed []issuer.CheckName
	}{
		"known":      {[]string{"--ca-file=" + ca}, cli.ExitMisconfigured, []issuer.CheckName{issuer.CheckTokenLifetime}},
		"unknown CA": {nil, cli.ExitUnavailable, []issuer.CheckName{issuer.CheckDiscoveryReachable}},
		"a slash": {[]string{"--ca-file=" + ca, "--issuer=" + w.cluster.IssuerURL() + "/"}, cli.ExitMisconfigured,
			[]issuer.CheckName{issuer.CheckIssuerOfToken}},
		"a foreign token": {[]string{"--ca-file=" + ca, "--issuer=" + w.cluster.IssuerURL(), "--token-file=" + foreign},
			cli.ExitMisconfigured,
			[]issuer.CheckName{issuer.CheckTokenReview, issuer.CheckIssuerOfToken, issuer.CheckSigningKey}},
		"no such ServiceAccount": {[]string{"--ca-file=" + ca, "--issuer=" + w.cluster.IssuerURL(),
			"--service-account=" + w.namespace + "/missing"}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.wid(t, "", append([]string{"issuer", "check", "-o=json", "--kubeconfig=" + w.kubeconfig,
				"--service-account=" + w.namespace + "/app"}, tc.args...)...)
			var checks []issuer.Check
			if err := json.Unmarshal([]byte(r.stdout), &checks); err != nil || r.code != tc.code {
				t.Fatalf("got %+v, %v; want code %d", r, err, tc.code)
			}
			failed := map[issuer.CheckName]bool{}
			for _, c := range issuer.Failed(checks) {
				failed[c.Name] = true
			}
			for _, want := range tc.failed {
				if !failed[want] {
					t.Errorf("got the failures %v, want %s", failed, want)
				}
			}
		})
	}
}
