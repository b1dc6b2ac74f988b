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

// Shells print what they are offered.
func TestCompletionLeavesHostileNamesOut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
		case "/apis":
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
		case "/api/v1":
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"namespaces","kind":"Namespace","verbs":["list"]},` +
				`{"name":"serviceaccounts","kind":"ServiceAccount","namespaced":true,"verbs":["list"]}]}`))
		default:
			_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"good"}},` +
				`{"metadata":{"name":"\u001b]0;evil\u0007"}},{"metadata":{"name":"$(evil)"}}]}`))
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig := writeFile(t, "hostile.yaml", strings.Replace(kubeconfigThrough(server.URL, ""), `"contexts":[`,
		`"contexts":[{"name":"evil\u001b[2J","context":{"cluster":"c","user":"u"}},`, 1))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"namespaces":      {[]string{"--service-account", ""}, "good/"},
		"ServiceAccounts": {[]string{"--service-account", "good/"}, "good/good"},
		"contexts":        {[]string{"--context", ""}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := complete(t.Context(), t, append([]string{"doctor", "--kubeconfig=" + kubeconfig}, tc.args...)...); !slices.Equal(got, []string{tc.want}) {
				t.Errorf("offered %q, not %q", got, tc.want)
			}
		})
	}
}

func TestCompletionOfChecks(t *testing.T) {
	for typed, want := range map[string]string{"": "lease", "sides,le": "sides,lease"} {
		if got := complete(t.Context(), t, "doctor", "registration", "--skip", typed); !slices.Contains(got, want) {
			t.Errorf("%q: offered %q", typed, got)
		}
	}
}
