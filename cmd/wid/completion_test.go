package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// complete returns what a shell would offer.
func complete(ctx context.Context, t *testing.T, args ...string) []string {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(append([]string{"__completeNoDesc"}, args...))
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	if err := root.ExecuteContext(ctx); err != nil {
		t.Error(err)
	}
	values, _, _ := strings.Cut(out.String(), ":")
	return strings.Fields(values)
}

func TestCompletionFromTheCluster(t *testing.T) {
	w := newKubeWorld(t)
	kubeconfig := "--kubeconfig=" + w.kubeconfig
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"namespaces before ServiceAccounts": {[]string{"token", kubeconfig, "--service-account", ""}, w.namespace + "/"},
		"ServiceAccounts of a namespace":    {[]string{"token", kubeconfig, "--service-account", w.namespace + "/"}, w.namespace + "/app"},
		"namespaces":                        {[]string{"pod-identity", "trust-policy", kubeconfig, "-n", ""}, w.namespace},
		"contexts of a credential":          {[]string{"token", kubeconfig, "--context", ""}, "envtest"},
		"contexts of a group":               {[]string{"bootstrap", kubeconfig, "list", "--context", ""}, "envtest"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := complete(t.Context(), t, tc.args...); !slices.Contains(got, tc.want) {
				t.Errorf("offered %q, without %q", got, tc.want)
			}
		})
	}
}

// A cluster that does not answer costs the shell nothing but the time limit, here that of the context.
func TestCompletionIsSilentAndBounded(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hang) })
	for name, kubeconfig := range map[string]string{
		"hanging API server":     writeFile(t, "hanging.yaml", kubeconfigOf(t, server.URL, nil, nil, nil, "")),
		"unreachable API server": writeFile(t, "unreachable.yaml", kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, "")),
		"broken kubeconfig":      writeFile(t, "broken.yaml", "{"),
		"no kubeconfig":          filepath.Join(t.TempDir(), "none"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), completionTime/10)
			defer cancel()
			if got := complete(ctx, t, "token", "--kubeconfig="+kubeconfig, "--service-account", "a/"); len(got) > 0 {
				t.Errorf("offered %q", got)
			}
		})
	}
}
