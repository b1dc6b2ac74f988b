package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The proxy's password is not in a message about a kubeconfig that cannot be used.
func TestProxyPasswordOfKubeconfig(t *testing.T) {
	w := newWorld(t)
	for _, proxy := range []string{"http://puser:PROXYSECRET%zz@proxy:1", "ftp://puser:PROXYSECRET@proxy"} {
		file := filepath.Join(w.home, "proxied")
		w.write(t, file, "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
			"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', proxy-url: '"+proxy+"'}}]\nusers: [{name: a, user: {token: x}}]\n")
		for _, args := range [][]string{
			{"token", "--provider=aws", "--service-account=a/b", "--kubeconfig=" + file},
			{"doctor", "--provider=aws", "--service-account=a/b", "--kubeconfig=" + file},
			{"bootstrap", "check", "--kubeconfig=" + file},
			{"doctor", "registration", "--cluster-name=a", "--hub-kubeconfig=" + file},
		} {
			r := w.wid(t, "", append(args, "--timeout=10s")...)
			if r.code == 0 || r.stdout+r.stderr == "" || strings.Contains(r.stdout+r.stderr, "PROXYSECRET") {
				t.Errorf("%v: %d\n%s%s", args, r.code, r.stdout, r.stderr)
			}
		}
	}
}
