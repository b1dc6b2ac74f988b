package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// Whatever goes wrong, the message ends with what to do.
func TestRemedies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nothing is lost
	kubeconfig := func(name, server string) []string {
		file := filepath.Join(w.home, name)
		w.write(t, file, kubeconfigOf(t, server, nil, nil, nil, ""))
		return []string{"--provider=aws", "--region=eu-central-1", "--kubeconfig=" + file, "--service-account=tenant-a/app"}
	}
	missing := filepath.Join(w.home, "missing")
	w.write(t, missing, strings.Replace(kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, ""), "user: {}",
		"user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, interactiveMode: Never}}", 1))
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nobody listens":   {kubeconfig("refused", "https://127.0.0.1:1"), cli.ExitUnavailable, "; check the cluster's address in the kubeconfig"},
		"nobody answers":   {append(kubeconfig("silent", "http://"+silent.Addr().String()), "--timeout=2s"), cli.ExitUnavailable, "; raise --timeout"},
		"no plugin":        {append(kubeconfig("x", ""), "--kubeconfig="+missing), cli.ExitUnavailable, "; check the cluster's address in the kubeconfig"},
		"too long a life":  {append(w.inHand(t), "--provider=aws", "--session-duration=2h"), cli.ExitMisconfigured, "or raise the role's maximum session duration (--session-duration)"},
		"no identity":      {[]string{"--provider=aws", "--region=eu-central-1"}, cli.ExitUnavailable, "; give this process an identity (IAM roles for service accounts or EKS Pod Identity), or name a ServiceAccount (--service-account)"},
		"not an authority": {append(w.inHand(t), "--provider=azure", "--authority-host=x"), cli.ExitMisconfigured, `"x" is refused`},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.wid(t, "", append([]string{"token"}, tc.args...)...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.want) || strings.Contains(r.stderr, "the controller") || r.stdout != "" {
				t.Errorf("%+v", r)
			}
		})
	}
	unknown := &auth.Error{Reason: auth.ErrDenied, Message: "no", Code: "AADSTS999999"}
	if got := parsed(t).InTermsOfFlags(unknown).Error(); !strings.Contains(got, "https://login.microsoftonline.com/error") {
		t.Error(got)
	}
	unknown.Remedy = "do this"
	if got := parsed(t).InTermsOfFlags(unknown).Error(); !strings.HasSuffix(got, "; do this") {
		t.Error(got)
	}
}
