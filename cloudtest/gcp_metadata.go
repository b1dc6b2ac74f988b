package cloudtest

import (
	"net/http"
	"strings"
	"time"
)

// GCPMetadata holds the values that the metadata server of GKE gives to a pod.
type GCPMetadata struct {
	// ProjectID is the ID of the project.
	ProjectID string
	// ClusterLocation and ClusterName are empty on a machine outside GKE.
	ClusterLocation, ClusterName string
	// Email is the address of the service account of the pod or the machine.
	// Empty: no service account.
	Email string
}

// SetMetadata sets the values of the metadata server. Without values, it
// answers every path with 404.
func (g *GCP) SetMetadata(m *GCPMetadata) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.metadata = m
}

// serveMetadata answers at http://metadata.google.internal and at
// http://169.254.169.254/computeMetadata/. It has only the values that
// credentials need, without directories and without waiting for changes.
func (g *GCP) serveMetadata(w http.ResponseWriter, r *http.Request, host string) {
	path := strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")
	call := Call{Service: "gcp-metadata", Action: path, Host: host, Parameters: map[string]string{
		"scopes": r.URL.Query().Get("scopes"), "audience": r.URL.Query().Get("audience")}}
	h := w.Header()
	h.Set("Metadata-Flavor", "Google")
	h.Set("Server", "GKE Metadata Server")
	fault, ok := g.cloud.begin(w, r, call, func(f Fault) {
		g.send(w, r, nil, f.Status, "text/plain; charset=utf-8", []byte(f.Message))
	})
	if !ok {
		return
	}
	status, body := g.metadataAnswer(r, path)
	contentType := "application/text"
	switch {
	case status != http.StatusOK:
		contentType = "text/plain; charset=utf-8"
	case strings.HasPrefix(body, "{"):
		contentType = "application/json"
	}
	g.send(w, r, fault, status, contentType, []byte(body))
}

func (g *GCP) metadataAnswer(r *http.Request, path string) (status int, body string) {
	if r.Header.Get("Metadata-Flavor") != "Google" || r.Header.Get("X-Forwarded-For") != "" {
		return http.StatusForbidden,
			`GKE Metadata Server encountered an error: Missing required header "Metadata-Flavor": "Google"`
	}
	g.mu.Lock()
	var m GCPMetadata
	if g.metadata != nil {
		m = *g.metadata
	}
	g.mu.Unlock()
	const account = "instance/service-accounts/default/"
	switch {
	case path == "project/project-id":
		body = m.ProjectID
	case path == "instance/attributes/cluster-location":
		body = m.ClusterLocation
	case path == "instance/attributes/cluster-name":
		body = m.ClusterName
	case path == account+"email":
		body = m.Email
	case path == account+"token" && m.Email != "":
		return g.metadataToken(r, m.Email)
	case path == account+"identity" && m.Email != "":
		return g.metadataIdentity(r, m.Email)
	}
	if body == "" {
		return http.StatusNotFound, "Not Found\n"
	}
	return http.StatusOK, body
}

func (g *GCP) metadataToken(r *http.Request, email string) (status int, body string) {
	scopes := []string{cloudPlatform}
	if s := r.URL.Query().Get("scopes"); s != "" {
		scopes = strings.Split(s, ",")
	}
	const lifetime = time.Hour - time.Second
	id := g.serviceAccountIdentity(email, scopes, lifetime)
	return http.StatusOK, string(googleLine(struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
		TokenType   string `json:"token_type"`
	}{g.issue("ya29.c.", id), int(lifetime / time.Second), "Bearer"}))
}

func (g *GCP) metadataIdentity(r *http.Request, email string) (status int, body string) {
	audience := r.URL.Query().Get("audience")
	if audience == "" {
		return http.StatusBadRequest, "non-empty audience parameter required\n"
	}
	token, err := g.signIDToken(email, audience, r.URL.Query().Get("format") == "full")
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	return http.StatusOK, token
}
