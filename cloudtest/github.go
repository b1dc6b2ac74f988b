package cloudtest

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// GitHub imitates the creation of installation tokens for GitHub Apps. It
// verifies the App's JWT (RS256, iss, iat, exp at most ten minutes ahead). It
// narrows tokens to the repositories and permissions of the request, which the
// installation must have. Statuses and texts are GitHub's.
//
// It has no other API, no Git and no repository_ids. Its only rate limit is
// [GitHub.SetRateLimit]. Its answers describe repositories by their names
// alone.
type GitHub struct {
	cloud         *Cloud
	mu            sync.Mutex
	apps          map[string]*rsa.PublicKey
	installations map[int64]GitHubInstallation
	issued        map[string]GitHubIdentity
	limited       int
	limits        http.Header // sent with the refusal
}

// GitHubInstallation is an installation of an App.
type GitHubInstallation struct {
	// App is the ID of the App.
	App string
	// Owner is the user or the organization. Repositories, without the owner,
	// are the ones that the App may see.
	Owner        string
	Repositories []string
	// Permissions map a permission to its level.
	Permissions map[string]string
	// Suspended makes GitHub refuse tokens.
	Suspended bool
}

// GitHubIdentity describes the rights of an installation token.
type GitHubIdentity struct {
	Installation int64
	// Repositories have the form <owner>/<name>.
	Repositories []string
	Permissions  map[string]string
	Expiration   time.Time
}

// NewGitHub serves the API of github.com, of a subdomain of ghe.com, or of a
// GitHub Enterprise Server elsewhere.
func NewGitHub(cloud *Cloud, host string) *GitHub {
	g := &GitHub{cloud: cloud, apps: map[string]*rsa.PublicKey{}, installations: map[int64]GitHubInstallation{},
		issued: map[string]GitHubIdentity{}}
	prefix := "/api/v3"
	if host == "github.com" || strings.HasSuffix(host, ".ghe.com") {
		host, prefix = "api."+host, ""
	}
	api := http.NewServeMux()
	api.HandleFunc("POST "+prefix+"/app/installations/{id}/access_tokens", g.createToken)
	api.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { g.fail(w, http.StatusNotFound, "Not Found") })
	cloud.Handle(host, api)
	return g
}

// AddApp adds an App by its client ID or its numeric ID.
func (g *GitHub) AddApp(id string, key *rsa.PublicKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.apps[id] = key
}

// SetInstallation adds or replaces an installation. An installation without an
// App removes the existing one and its tokens.
func (g *GitHub) SetInstallation(id int64, installation GitHubInstallation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.installations[id] = installation; installation.App == "" {
		maps.DeleteFunc(g.issued, func(_ string, i GitHubIdentity) bool { return i.Installation == id })
	}
}

// SetRateLimit makes the API answer with a status and headers, such as
// Retry-After. Status 0 removes the limit.
func (g *GitHub) SetRateLimit(status int, headers http.Header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limited, g.limits = status, headers.Clone()
}

// Identity returns the rights of a token. It returns false for a token that
// GitHub did not issue, or that has expired.
func (g *GitHub) Identity(token string) (GitHubIdentity, bool) {
	now := g.cloud.time()
	g.mu.Lock()
	defer g.mu.Unlock()
	id, ok := g.issued[token]
	return id, ok && now.Before(id.Expiration)
}

func (g *GitHub) answer(w http.ResponseWriter, status int, document map[string]any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Date", g.cloud.time().UTC().Format(http.TimeFormat))
	w.Header().Set("X-GitHub-Request-Id", "C0DE:1234:5678")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // a client that has gone needs no answer
}

func (g *GitHub) fail(w http.ResponseWriter, status int, message string) {
	g.answer(w, status, map[string]any{"message": message, "documentation_url": "https://docs.github.com/rest"})
}

func (g *GitHub) createToken(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64) // 0 never names an installation
	var asked GitHubInstallation                         // the request has two of these members
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	malformed := r.ContentLength != 0 && body.Decode(&asked) != nil
	g.mu.Lock()
	defer g.mu.Unlock()
	app, problem := g.verify(r.Header.Get("Authorization"))
	has := g.installations[id]
	switch {
	case g.limited != 0:
		maps.Copy(w.Header(), g.limits)
		g.fail(w, g.limited, "API rate limit exceeded")
	case r.UserAgent() == "":
		g.fail(w, http.StatusForbidden, "Request forbidden by administrative rules.")
	case problem != "":
		g.fail(w, http.StatusUnauthorized, problem)
	case has.App != app:
		g.fail(w, http.StatusNotFound, "Not Found")
	case has.Suspended:
		g.fail(w, http.StatusForbidden, "This installation has been suspended")
	case malformed:
		g.fail(w, http.StatusBadRequest, "Problems parsing JSON")
	case slices.ContainsFunc(asked.Repositories, func(name string) bool {
		return !slices.Contains(has.Repositories,
			name)
	}):
		g.fail(w, http.StatusUnprocessableEntity,
			"There is at least one repository that does not exist or is not accessible to the parent installation.")
	case !covers(has.Permissions, asked.Permissions):
		g.fail(w, http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
	default:
		g.answer(w, http.StatusCreated, g.issue(id, has, asked))
	}
}

func covers(granted, asked map[string]string) bool {
	levels := []string{"", "read", "write", "admin"}
	for name, level := range asked {
		if n := slices.Index(levels, level); n < 1 || n > slices.Index(levels, granted[name]) {
			return false
		}
	}
	return true
}

// verify returns the App of a JWT.
func (g *GitHub) verify(authorization string) (app, problem string) {
	scheme, token, _ := strings.Cut(authorization, " ")
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	var claims struct {
		Issuer json.RawMessage `json:"iss"` // a string or a number
		Issued int64           `json:"iat"`
		Expiry int64           `json:"exp"`
	}
	if err != nil || !strings.EqualFold(scheme, "Bearer") || parsed.UnsafeClaimsWithoutVerification(&claims) != nil {
		return "", "A JSON web token could not be decoded"
	}
	app, now := strings.Trim(string(claims.Issuer), `"`), g.cloud.time().Unix()
	switch key := g.apps[app]; {
	case key == nil || parsed.Claims(key, &claims) != nil:
		return "", "A JSON web token could not be decoded"
	case claims.Issued > now:
		return "", "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
	case claims.Expiry <= now:
		return "",
			"'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires"
	case claims.Expiry > now+600:
		return "", "'Expiration time' claim ('exp') is too far in the future"
	}
	return app, ""
}

func (g *GitHub) issue(id int64, has, asked GitHubInstallation) map[string]any {
	document, token := map[string]any{"repository_selection": "selected"},
		"ghs_"+base64.RawURLEncoding.EncodeToString(random(27))
	var described []map[string]any
	for _, name := range asked.Repositories {
		described = append(described, map[string]any{"name": name, "full_name": has.Owner + "/" + name})
	}
	if document["repositories"] = described; described == nil {
		delete(document, "repositories")
		document["repository_selection"], asked.Repositories = "all", has.Repositories
	}
	if asked.Permissions == nil {
		asked.Permissions = has.Permissions
	}
	end := g.cloud.time().Add(time.Hour).Truncate(time.Second)
	identity := GitHubIdentity{Installation: id, Permissions: map[string]string{"metadata": "read"}, Expiration: end}
	maps.Copy(identity.Permissions, asked.Permissions)
	for _, name := range asked.Repositories {
		identity.Repositories = append(identity.Repositories, has.Owner+"/"+name)
	}
	g.issued[token] = identity
	document["token"], document["permissions"], document["expires_at"] = token, identity.Permissions,
		end.UTC().Format(time.RFC3339)
	return document
}
