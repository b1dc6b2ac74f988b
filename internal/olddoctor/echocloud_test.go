package doctor_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// leaks finds 16 bytes of a secret in a text.
func leaks(text, secret string) bool {
	for i := 0; i+16 <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+16]) {
			return true
		}
	}
	return false
}

// A cluster that names its user by the credential, or in no way, does not pass, and the credential is in no report.
func TestClusterEchoesTheCredential(t *testing.T) {
	for _, provider := range []string{"gcp", "azure", "generic"} {
		for name, user := range map[string]func(bearer string) string{
			"whole":   func(bearer string) string { return bearer },
			"within":  func(bearer string) string { return "user " + bearer },
			"nothing": func(string) string { return "" },
		} {
			var bearer string
			server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				bearer = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				review := authenticationv1.SelfSubjectReview{}
				review.Status.UserInfo.Username = user(bearer)
				rw.WriteHeader(http.StatusCreated)
				_ = json.NewEncoder(rw).Encode(review)
			}))
			t.Cleanup(server.Close)
			w := newWorld(t, provider)
			w.config.ClusterAddress, w.config.ClusterCA = server.URL, string(pemOf(server))
			report := w.run()
			if f := report.Of("cluster"); f.Result != doctor.Unknown || f.Remedy == "" || !strings.Contains(f.Message, "no API server") {
				t.Errorf("%s, %s: %+v", provider, name, f)
			}
			if bearer == "" || leaks(everythingIn(t, report), bearer) {
				t.Errorf("%s, %s, sent %t:\n%s", provider, name, bearer != "", report)
			}
		}
	}
}

// What Azure's authorizer says goes the same way.
func TestClusterEchoesInItsReason(t *testing.T) {
	var bearer string
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		bearer = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		rw.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(rw).Encode(map[string]any{"status": map[string]any{"userInfo": map[string]any{"username": "joe"},
			"reason": bearer + " does not have access to the resource in Azure"}})
	}))
	t.Cleanup(server.Close)
	w := newWorld(t, "azure")
	w.config.ClusterAddress, w.config.ClusterCA = server.URL, string(pemOf(server))
	report := w.run()
	if f := report.Of("cluster"); f.Result != doctor.Fail || f.Class != "Z18" || leaks(everythingIn(t, report), bearer) {
		t.Errorf("%+v\n%s", f, report)
	}
}

// A registry that repeats the password, as it was sent or decoded, does not get it into a report.
func TestRegistryEchoesThePassword(t *testing.T) {
	for provider, repository := range map[string]string{"gcp": garHost + "/my-project/r/app", "aws": ecrHost + "/app"} {
		for name, echo := range map[string]func(header, pair string) string{
			"header":  func(header, _ string) string { return header },
			"decoded": func(_, pair string) string { return pair },
			"late":    func(header, _ string) string { return strings.Repeat("x", 200) + header },
		} {
			var mu sync.Mutex
			var header, pair string
			w := newWorld(t, provider)
			w.config.Repository = repository
			w.config.RegistryClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				rec := httptest.NewRecorder()
				if sent := r.Header.Get("Authorization"); sent == "" {
					rec.Header().Set("WWW-Authenticate", `Basic realm="x"`)
					rec.WriteHeader(http.StatusUnauthorized)
				} else {
					content, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(sent, "Basic "))
					header, pair = sent, string(content)
					rec.WriteHeader(http.StatusForbidden)
					_ = json.NewEncoder(rec).Encode(map[string]any{"errors": []any{map[string]any{"code": "DENIED", "message": echo(header, pair)}}})
				}
				resp := rec.Result()
				resp.Request = r
				return resp, nil
			})}
			report := w.run()
			_, secret, _ := strings.Cut(pair, ":")
			text := everythingIn(t, report)
			if f := report.Of("registry"); f.Result != doctor.Fail || secret == "" || leaks(text, secret) || leaks(text, strings.TrimPrefix(header, "Basic ")) {
				t.Errorf("%s, %s, sent %t: %+v", provider, name, secret != "", f)
			}
		}
	}
}
