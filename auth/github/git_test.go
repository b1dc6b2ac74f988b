package github_test

import (
	"net/http"
	"net/http/cgi"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/github"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestGitHosts(t *testing.T) {
	w := newEnvironment(t)
	for _, tc := range []struct {
		api, address string
		ok           bool
	}{
		{"", "https://github.com/org/app.git", true},
		{"", "https://GitHub.com:443/org/app", true},
		{"", "https://github.com:8443/org/app", false},
		{"", "https://github.com./org/app", false},
		{"", "https://www.github.com/org/app", false},
		{"", "https://api.github.com/org/app", false},
		{"", "https://ghcr.io/org/app", false},
		{"", "http://github.com/org/app", false},
		{"", "https://github.com.example/org/app", false},
		{"https://api.github.com/", "https://github.com/org/app", true},
		{"https://api.acme.ghe.com", "https://acme.ghe.com/org/app", true},
		{"https://api.acme.ghe.com", "https://other.ghe.com/org/app", false},
		{"https://api.acme.ghe.com", "https://github.com/org/app", false},
		{"https://git.example:8443/api/v3", "https://git.example:8443/org/app", true},
		{"https://git.example:8443/api/v3", "https://git.example/org/app", false},
		{"https://Git.Example/api/v3/", "https://git.example/org/app", true},
		{"https://git.example", "https://git.example/org/app", false},
	} {
		u, err := url.Parse(tc.address)
		if err != nil {
			t.Fatal(err)
		}
		p := w.provider()
		p.URL = tc.api
		input, err := p.ParseGitRepository(u, &provider.Options{})
		if tc.ok && (err != nil || input == "") {
			t.Errorf("%q with %q: got %q, %v", tc.address, tc.api, input, err)
		}
		if !tc.ok {
			testenv.CheckError(t, err, auth.ErrMisconfigured, "github.Provider.URL")
		}
	}
}

// serveGit is Git over https. A repository that the token may not see does not
// exist.
func (w *environment) serveGit(git http.Handler) {
	w.Cloud.Handle("github.com", http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		id, ok := w.github.Identity(password)
		parts := strings.SplitN(r.URL.Path, "/", 4) // "", owner, repository, rest
		push := strings.HasSuffix(r.URL.Path, "/git-receive-pack") || r.URL.Query().Get("service") == "git-receive-pack"
		may := id.Permissions["contents"] == "write" || id.Permissions["contents"] == "read" && !push
		switch {
		case !ok || user != "x-access-token":
			out.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			http.Error(out, "Invalid username or token.", http.StatusUnauthorized)
		case !may || !slices.Contains(id.Repositories, parts[1]+"/"+strings.TrimSuffix(parts[2], ".git")):
			http.Error(out, "Repository not found.", http.StatusNotFound)
		default:
			git.ServeHTTP(out, r)
		}
	}))
}

// git itself clones with the credentials, and pushes if the grant has it.
func TestGitItself(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatalf("install git: %v", err)
	}
	w, home := newEnvironment(t), t.TempDir()
	env, err := w.Cloud.ProxyEnv(home)
	if err != nil {
		t.Fatal(err)
	}
	env = append(append(os.Environ(), env...), "HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	run := func(c *auth.GitCredentials, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), git, append([]string{"-c",
			`credential.helper=!f() { echo "username=$GIT_USER"; echo "password=$GIT_PASSWORD"; }; f`},
			args...)...) //nolint:gosec // see above
		if cmd.Dir, cmd.Env = home, env; c != nil {
			cmd.Env = append(env[:len(env):len(env)], "GIT_USER="+c.Username(), "GIT_PASSWORD="+c.Password())
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	bare := filepath.Join(home, "srv", "org-a", "app.git")
	for _, args := range [][]string{{"init", "-q", "work"}, {"-C", "work", "commit", "-q", "--allow-empty", "-m", "first"},
		{"clone", "-q", "--bare", "work", bare},
		{"-C", bare, "config", "http.receivepack", "true"}} {
		if out, err := run(nil, args...); err != nil {
			t.Fatalf("git %q: %s", args, out)
		}
	}
	root := filepath.Join(home, "srv")
	w.serveGit(&cgi.Handler{Path: git, Args: []string{"http-backend"}, Dir: root, Env: []string{"GIT_PROJECT_ROOT=" + root,
		"GIT_HTTP_EXPORT_ALL=1", "HOME=" + home}})
	repository := url.URL{Scheme: "https", Host: "github.com", Path: "/org-a/app.git"}
	credentials := func(opts ...auth.Option) *auth.GitCredentials {
		c, err := auth.GetGitCredentials(t.Context(), w.provider(), w.options("tenant-a", append(opts,
			auth.WithGitURL(repository))...)...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write, read := credentials(), credentials(github.WithPermissions(map[string]string{"contents": "read"}))
	if out, err := run(read, "clone", "-q", repository.String(), "copy"); err != nil {
		t.Fatalf("clone: %s", out)
	}
	if out, err := run(nil, "-C", "copy", "commit", "-q", "--allow-empty", "-m", "second"); err != nil {
		t.Fatal(out)
	}
	if out, err := run(read, "-C", "copy", "push", "-q", "origin", "HEAD"); err == nil {
		t.Errorf("a token that reads was good for a push: %s", out)
	}
	if out, err := run(write, "-C", "copy", "push", "-q", "origin", "HEAD"); err != nil {
		t.Errorf("push: %s", out)
	}
	if out, err := run(write, "clone", "-q", "https://github.com/org-a/secret", "other"); err == nil {
		t.Errorf("another repository was cloned: %s", out)
	}
	w.github.SetInstallation(42, cloudtest.GitHubInstallation{})
	if out, err := run(write, "clone", "-q", repository.String(), "third"); err == nil {
		t.Errorf("cloned after the App was uninstalled: %s", out)
	}
}
