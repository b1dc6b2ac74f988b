package cloudtest

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// SetRepository sets the members that may read and write a repository of
// Artifact Registry, <host>/<project>/<repository>, or of gcr.io,
// <host>/<project>.
func (g *GCP) SetRepository(name string, readers ...string) { g.setReaders(name, readers) }

// SetGitRepository sets the members that may read and write a repository of
// Secure Source Manager, <host>/<project>/<repository>.
func (g *GCP) SetGitRepository(name string, readers ...string) { g.setReaders(name, readers) }

func (g *GCP) setReaders(name string, readers []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers[name] = readers
}

// SetRegistryHandler sets the handler of authorized requests, such as the
// registry of go-containerregistry. Without it, the registry is empty.
func (g *GCP) SetRegistryHandler(h http.Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.registry = h
}

// readersOf returns the name and the readers of the repository that contains a
// path.
func (g *GCP) readersOf(host, path string) (name string, readers []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, readers := range g.readers {
		if full := host + "/" + path + "/"; strings.HasPrefix(full, name+"/") {
			return name, readers
		}
	}
	return host + "/" + path, nil
}

// serveRegistry is the front end of Artifact Registry: the token endpoint
// /v2/token, and everything below /v2/. Callers present an access token as the
// password of oauth2accesstoken, or as a bearer token.
func (g *GCP) serveRegistry(w http.ResponseWriter, r *http.Request, host string) {
	action := "pull"
	if r.URL.Path == "/v2/token" {
		action = "token"
	}
	call := Call{Service: "artifactregistry", Action: action, Host: host, Parameters: map[string]string{
		"path": r.URL.Path, "scope": r.URL.Query().Get("scope")}}
	fault, ok := g.cloud.begin(w, r, call, func(f Fault) { g.refuseRegistry(w, r, nil, f.Status, f.Code, f.Message) })
	if !ok {
		return
	}
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	token, ok := garCredential(r)
	if !ok && action != "token" {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="https://%s/v2/token",service=%q`, host, host))
	}
	caller, valid := g.Identity(token)
	if !valid || !caller.hasScope("https://www.googleapis.com/auth/devstorage.read_only") {
		g.refuseRegistry(w, r, fault, http.StatusUnauthorized, "UNAUTHORIZED", "authentication failed")
		return
	}
	repository := garRepository(r)
	if name, readers := g.readersOf(host, repository); repository != "" && !caller.isOneOf(readers) {
		g.refuseRegistry(w, r, fault, http.StatusForbidden, "DENIED", fmt.Sprintf(
			`Permission "artifactregistry.repositories.downloadArtifacts" denied on resource %q (or it may not exist)`, name))
		return
	}
	g.mu.Lock()
	registry := g.registry
	g.mu.Unlock()
	switch {
	case action == "token":
		left := caller.Expiration.Sub(g.cloud.time())
		g.send(w, r, fault, http.StatusOK, "application/json",
			googleLine(map[string]any{"token": token, "expires_in": int(left / time.Second)}))
	case registry != nil:
		registry.ServeHTTP(w, r)
	case r.URL.Path == "/v2/":
		g.send(w, r, fault, http.StatusOK, "application/json", []byte("{}"))
	default:
		g.refuseRegistry(w, r, fault, http.StatusNotFound, "NAME_UNKNOWN", "Repository not found.")
	}
}

func (g *GCP) refuseRegistry(w http.ResponseWriter, r *http.Request, fault *Fault, status int, code, message string) {
	g.send(w, r, fault, status, "application/json",
		googleLine(map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}}))
}

// garCredential returns the access token of the request.
func garCredential(r *http.Request) (token string, ok bool) {
	if user, password, ok := r.BasicAuth(); ok {
		if user != "oauth2accesstoken" {
			return "", true
		}
		return password, true
	}
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, ok && strings.EqualFold(scheme, "Bearer")
}

// garRepository returns the name of the image in a request.
func garRepository(r *http.Request) string {
	if r.URL.Path == "/v2/token" {
		parts := strings.Split(r.URL.Query().Get("scope"), ":")
		if len(parts) < 3 {
			return ""
		}
		return parts[1]
	}
	name := strings.TrimPrefix(r.URL.Path, "/v2/")
	for _, end := range []string{"/manifests/", "/blobs/", "/tags/", "/referrers/"} {
		if i := strings.LastIndex(name, end); i >= 0 {
			return name[:i]
		}
	}
	return ""
}

// serveGit answers the first request of Git over HTTPS at Secure Source
// Manager, GET <repository>[.git]/info/refs. The access token is the password
// of any user, or a bearer token. Repositories are empty.
func (g *GCP) serveGit(w http.ResponseWriter, r *http.Request, host string) {
	path, isRefs := strings.CutSuffix(r.URL.Path, "/info/refs")
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), ".git")
	call := Call{Service: "sourcemanager", Action: "info/refs", Host: host, Parameters: map[string]string{"path": path}}
	fault, ok := g.cloud.begin(w, r, call, func(f Fault) { http.Error(w, f.Message, f.Status) })
	if !ok {
		return
	}
	plain := "text/plain; charset=utf-8"
	_, token, ok := r.BasicAuth()
	if !ok {
		token, _ = garCredential(r)
	}
	caller, valid := g.Identity(token)
	switch _, readers := g.readersOf(host, path); {
	case !valid:
		w.Header().Set("WWW-Authenticate", `Basic realm="Secure Source Manager"`)
		g.send(w, r, fault, http.StatusUnauthorized, plain, []byte("Unauthorized\n"))
	case !isRefs || r.URL.Query().Get("service") == "" || readers == nil:
		g.send(w, r, fault, http.StatusNotFound, plain, []byte("Not found.\n"))
	case !caller.isOneOf(readers):
		g.send(w, r, fault, http.StatusForbidden, plain, []byte("Forbidden\n"))
	default:
		g.cloud.sendGitRefs(w, r, fault)
	}
}
