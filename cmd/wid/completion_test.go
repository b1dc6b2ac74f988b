package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Shells print what they are offered.
func TestCompletionOfContexts(t *testing.T) {
	kubeconfig := "--kubeconfig=" + writeFile(t, "hostile.yaml", strings.Replace(kubeconfigThrough("https://127.0.0.1:1", ""), `"contexts":[`,
		`"contexts":[{"name":"evil\u001b[2J","context":{"cluster":"c","user":"u"}},`, 1))
	broken := "--kubeconfig=" + writeFile(t, "broken.yaml", "{")
	for name, tc := range map[string]struct{ args, want []string }{
		"of a credential":      {[]string{"token", kubeconfig}, []string{"c"}},
		"of a group":           {[]string{"bootstrap", kubeconfig, "list"}, []string{"c"}},
		"in a broken file":     {[]string{"token", broken}, nil},
		"without a kubeconfig": {[]string{"token", "--kubeconfig=" + filepath.Join(t.TempDir(), "none")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out := must(t, slices.Concat([]string{"__completeNoDesc"}, tc.args, []string{"--context", ""})...)
			values, _, _ := strings.Cut(out, ":")
			if got := strings.Fields(values); !slices.Equal(got, tc.want) {
				t.Errorf("offered %q, not %q", got, tc.want)
			}
		})
	}
}

// The shell itself completes names of files.
func TestCompletionOfFiles(t *testing.T) {
	for _, flag := range []string{"--kubeconfig", "--token-file"} {
		if out := must(t, "__completeNoDesc", "token", flag, ""); !strings.HasPrefix(out, ":0") {
			t.Errorf("%s: %s", flag, out)
		}
	}
}

func kubeconfigThrough(server, proxy string) string {
	return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"users":[{"name":"u","user":{"token":"secret"}}],"clusters":[{"name":"c","cluster":{"server":"` + server + `","proxy-url":"` + proxy + `"}}]}`
}
