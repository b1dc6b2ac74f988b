package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// oauthError is an error of RFC 6749, section 5.2.
type oauthError struct {
	status            int
	code, description string
}

func refuseOAuth(code, format string, args ...any) *oauthError {
	return &oauthError{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
}

// oauthCall is one request to the server.
type oauthCall struct {
	oauth *OAuth
	w     http.ResponseWriter
	r     *http.Request
	form  url.Values
	// basic is set if the client used the Authorization header.
	basic bool
}

func (o *OAuth) serve(w http.ResponseWriter, r *http.Request, host string) {
	s := &oauthCall{oauth: o, w: w, r: r}
	action, handle := s.route()
	var failed *oauthError
	if action == "token" {
		failed = s.readForm()
	}
	call := Call{Service: "oauth", Action: action, Host: host, Parameters: s.parameters()}
	fault, ok := o.cloud.begin(w, r, call, func(f Fault) { s.fail(nil, &oauthError{f.Status, f.Code, f.Message}) })
	if !ok {
		return
	}
	if failed == nil {
		var document any
		if document, failed = handle(); failed == nil {
			s.send(fault, http.StatusOK, document)
			return
		}
	}
	s.fail(fault, failed)
}

func (s *oauthCall) route() (action string, handle func() (any, *oauthError)) {
	c := s.oauth.settings()
	path := s.r.URL.Path
	switch {
	case path == c.Path+"/token":
		return "token", s.exchange
	case path == c.Path+"/jwks":
		return "jwks", func() (any, *oauthError) { return s.oauth.keys(), nil }
	case path == c.Path+"/userinfo":
		return "userinfo", s.userinfo
	case path == "/.well-known/oauth-authorization-server"+c.Path && !c.OpenIDOnly,
		path == c.Path+"/.well-known/openid-configuration":
		return "metadata", func() (any, *oauthError) { return s.oauth.metadata(), nil }
	}
	return "unknown", func() (any, *oauthError) {
		return nil, &oauthError{status: http.StatusNotFound, description: "not found"}
	}
}

func (o *OAuth) metadata() map[string]any {
	issuer := o.URL()
	return map[string]any{
		"issuer":                                issuer,
		"token_endpoint":                        o.TokenEndpoint(),
		"jwks_uri":                              issuer + "/jwks",
		"userinfo_endpoint":                     issuer + "/userinfo",
		"grant_types_supported":                 []string{grantTokenExchange, grantJWTBearer, grantClientCredentials},
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic"},
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"ES256"},
	}
}

// readForm takes the parameters from the body only, each once (RFC 6749,
// section 3.2).
func (s *oauthCall) readForm() *oauthError {
	if s.r.Method != http.MethodPost {
		return &oauthError{http.StatusMethodNotAllowed, "invalid_request", "the token endpoint takes POST only"}
	}
	if t, _, _ := strings.Cut(s.r.Header.Get("Content-Type"), ";"); t != "application/x-www-form-urlencoded" {
		return refuseOAuth("invalid_request", "the content type has to be application/x-www-form-urlencoded")
	}
	s.r.Body = http.MaxBytesReader(s.w, s.r.Body, maxRequest)
	if err := s.r.ParseForm(); err != nil {
		return refuseOAuth("invalid_request", "the body is not a form")
	}
	s.form = s.r.PostForm
	for name, values := range s.form {
		if len(values) > 1 {
			return refuseOAuth("invalid_request", "the parameter %s is there more than once", name)
		}
	}
	return nil
}

// parameters leaves out secrets.
func (s *oauthCall) parameters() map[string]string {
	m := map[string]string{}
	for name := range s.form {
		switch name {
		case "subject_token", "actor_token", "assertion", "client_secret", "client_assertion":
		default:
			m[name] = s.form.Get(name)
		}
	}
	return m
}

// userinfo answers requests with a valid token (RFC 6750).
func (s *oauthCall) userinfo() (any, *oauthError) {
	token, ok := strings.CutPrefix(s.r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		s.w.Header().Set("WWW-Authenticate", `Bearer realm="userinfo"`)
		return nil, &oauthError{http.StatusUnauthorized, "invalid_request", "there is no bearer token"}
	}
	id, ok := s.oauth.Identity(token)
	if !ok {
		s.w.Header().Set("WWW-Authenticate", `Bearer realm="userinfo", error="invalid_token"`)
		return nil, &oauthError{http.StatusUnauthorized, "invalid_token", "the token is not one of ours, or has expired"}
	}
	return map[string]any{"sub": id.Subject, "scope": strings.Join(id.Scopes, " ")}, nil
}

func (s *oauthCall) fail(fault *Fault, err *oauthError) {
	document := map[string]string{}
	if err.code != "" {
		document["error"] = err.code
	}
	if err.description != "" {
		document["error_description"] = err.description
	}
	if err.status == http.StatusUnauthorized && s.basic {
		s.w.Header().Set("WWW-Authenticate", `Basic realm="token"`)
	}
	s.send(fault, err.status, document)
}

func (s *oauthCall) send(fault *Fault, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		http.Error(s.w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := s.w.Header()
	h.Set("Content-Type", "application/json;charset=UTF-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	fault.send(s.w, s.r, s.oauth.cloud.closing, status, body)
}
