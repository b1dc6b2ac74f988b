package kubeconfig_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/registration/kubeconfig"
)

// What is accepted needs no file and no program, and says the same after it was
// composed.
func FuzzParseBootstrap(f *testing.F) {
	f.Add([]byte("{apiVersion: v1, kind: Config, clusters: [{name: h, cluster: {server: https://hub.example.com}}]}"))
	f.Add(
		[]byte(
			`{"apiVersion":"v1","kind":"Config","clusters":[{"cluster":{"server":"https://h:1"}}],"users":[{"user":{"token":"t"}}]}`))
	f.Add(
		[]byte(
			"apiVersion: v1\nkind: Config\nclusters:\n- cluster: {server: https://h, insecure-skip-tls-verify: true}\nusers:\n- user: {exec: {command: sh}}\n"))
	f.Add(
		[]byte(
			"apiVersion: v1\nkind: Config\nclusters: [{name: h, cluster: {server: 'https://[::1]:1'}}]\nusers: [{name: u, user: {client-certificate-data: YQ==, client-key-data: Yg==}}]\ncontexts: [{name: c, context: {cluster: h, user: u}}]\ncurrent-context: c"))
	f.Fuzz(func(t *testing.T, content []byte) {
		hub, err := kubeconfig.ParseBootstrap(content)
		if err != nil {
			return
		}
		c := hub.Cluster
		if !strings.HasPrefix(strings.ToLower(c.Server), "https://") || c.CertificateAuthority != "" ||
			c.InsecureSkipTLSVerify {
			t.Fatalf("accepted %+v", c)
		}
		if hub.User == nil {
			return
		}
		config := hub.Config(*hub.User)
		if config.Insecure || config.CAFile+config.CertFile+config.KeyFile+config.BearerTokenFile != "" ||
			config.ExecProvider != nil {
			t.Fatalf("configuration %+v", config)
		}
		composed, err := hub.Compose(*hub.User)
		if err != nil {
			t.Fatal(err)
		}
		again, err := kubeconfig.ParseBootstrap(composed)
		if err != nil {
			t.Fatalf("what was composed is refused: %v", err)
		}
		twice, err := again.Compose(*again.User)
		if err != nil || !bytes.Equal(composed, twice) {
			t.Fatalf("composed %s, then %s, %v", composed, twice, err)
		}
	})
}
