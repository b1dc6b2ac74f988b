package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where nothing can be kept, people are told why every call makes an exchange: once, and not where programs read.
func TestCachingThatIsOff(t *testing.T) {
	w := newWorld(t)
	args := append([]string{"credential-process"}, w.inHand(t)...)
	for name, tc := range map[string]struct {
		env  []string
		more []string
		want string
	}{
		"relative XDG_CACHE_HOME": {env: []string{"XDG_CACHE_HOME=cache"}, want: "relative"},
		"no home":                 {env: []string{"HOME=", "XDG_CACHE_HOME="}, want: "HOME"},
		"relative home":           {env: []string{"HOME=home", "XDG_CACHE_HOME="}, want: `"home/.cache" is not absolute`},
		"said so":                 {env: []string{"HOME="}, more: []string{"--no-cache"}},
		"told where":              {env: []string{"HOME="}, more: []string{"--cache-dir=" + filepath.Join(w.home, "kept")}},
	} {
		before := w.mints()
		r := w.exec(t, "", tc.env, "wid", append(args, tc.more...)...)
		if r.code != 0 || !strings.HasPrefix(r.stdout, `{"Version":1`) || w.mints() != before+1 {
			t.Errorf("%s: %+v", name, r)
		}
		warned := strings.Count(r.stderr, "\n") == 1 && strings.Contains(r.stderr, tc.want) && strings.Contains(r.stderr, "--cache-dir") && strings.Contains(r.stderr, "--no-cache")
		if tc.want == "" && r.stderr != "" || tc.want != "" && !warned {
			t.Errorf("%s: standard error is %q", name, r.stderr)
		}
	}
	for _, dir := range []string{"cache/workloadid", "home/.cache/workloadid"} {
		if _, err := os.Stat(filepath.Join(w.home, dir)); err == nil {
			t.Errorf("%s was created in the working directory", dir)
		}
	}
}
