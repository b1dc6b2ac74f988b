package cloudtest

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/awsname"
)

// SetGitServer sets the handler for the repositories of CodeCommit. It runs
// after the user and the password are verified. Without it, every repository is
// empty.
func (a *AWS) SetGitServer(h http.Handler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.git = h
}

func isGitHost(host string) bool {
	_, ok := awsname.ParseGitHost(host)
	return ok
}

const (
	gitDate = "20060102T150405"
	gitRoot = "/v1/repos/"
)

// serveGit imitates CodeCommit over HTTPS. Its refusals have the real status,
// but the real bodies are not known for sure.
func (a *AWS) serveGit(w http.ResponseWriter, r *http.Request, host string) {
	repository := repositoryOf(r.URL.Path)
	call := Call{Service: "codecommit", Action: strings.TrimPrefix(r.URL.Path, repository), Host: host,
		Parameters: map[string]string{"repository": repository}}
	fault, ok := a.cloud.begin(w, r, call, func(f Fault) { http.Error(w, f.Message, f.Status) })
	if !ok {
		return
	}
	user, password, given := r.BasicAuth()
	if !given {
		w.Header().Set("Www-Authenticate", `Basic realm="Authenticate to AWS CodeCommit"`)
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	id, ok := a.ValidGitPassword(host, repository, user, password)
	if action := gitAction(r); !ok || a.isDenied(id, action) {
		http.Error(w, "", http.StatusForbidden)
		return
	}
	a.mu.Lock()
	git := a.git
	a.mu.Unlock()
	if git != nil {
		git.ServeHTTP(w, r)
		return
	}
	a.cloud.sendGitRefs(w, r, fault)
}

// sendGitRefs answers a request for the refs of an empty repository (Git's
// smart HTTP protocol).
func (c *Cloud) sendGitRefs(w http.ResponseWriter, r *http.Request, fault *Fault) {
	service := r.URL.Query().Get("service")
	line := "# service=" + service + "\n"
	w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	fault.send(w, r, c.closing, http.StatusOK, fmt.Appendf(nil, "%04x%s00000000", len(line)+4, line))
}

// repositoryOf returns /v1/repos/<name> of a path.
func repositoryOf(path string) string {
	name, ok := strings.CutPrefix(path, gitRoot)
	if !ok {
		return path
	}
	name, _, _ = strings.Cut(name, "/")
	return gitRoot + name
}

func gitAction(r *http.Request) string {
	if r.URL.Query().Get("service") == "git-receive-pack" || strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
		return "codecommit:GitPush"
	}
	return "codecommit:GitPull"
}

// ValidGitPassword returns the identity behind a user name and password. It
// reports whether CodeCommit accepts them for the repository with a path,
// /v1/repos/<name>.
func (a *AWS) ValidGitPassword(host, path, user, password string) (Identity, bool) {
	region, ok := awsname.ParseGitHost(host)
	id, session, hasSession := strings.Cut(user, "%")
	date, signature, signed := strings.Cut(password, "Z")
	key, known := a.key(id)
	at, err := time.Parse(gitDate, date)
	now := a.cloud.time()
	switch {
	case !ok || !signed || !known || err != nil || hasSession != (key.sessionToken != ""):
		return Identity{}, false
	case subtle.ConstantTimeCompare([]byte(key.sessionToken), []byte(session)) != 1:
		return Identity{}, false
	case now.After(at.Add(sigSkew)) || at.After(now.Add(sigSkew)) ||
		!key.Expiration.IsZero() && !now.Before(key.Expiration):
		return Identity{}, false
	}
	canonical := "GIT\n" + path + "\n\nhost:" + host + "\n\nhost\n"
	want := signText(canonical, date, key.secret, []string{date[:8], region, "codecommit", "aws4_request"})
	return key.Identity, subtle.ConstantTimeCompare([]byte(want), []byte(signature)) == 1
}
