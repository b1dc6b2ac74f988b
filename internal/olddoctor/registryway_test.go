package doctor_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// registryOf answers for the registry of the healthy world, and takes note of whom its client turned to.
func registryOf(t *testing.T, answer func(rec *httptest.ResponseRecorder, r *http.Request)) (w *world, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var list []string
	w = newWorld(t, "gcp")
	w.config.Repository = garHost + "/my-project/r/app"
	w.config.RegistryClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, r.URL.Scheme+"://"+r.URL.Host)
		rec := httptest.NewRecorder()
		answer(rec, r)
		resp := rec.Result()
		resp.Request = r
		return resp, nil
	})}
	return w, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

// A registry does not choose what is asked in the own network, nor has it the password sent in the clear.
func TestRegistryLeadsNowhere(t *testing.T) {
	challenge := func(realm string) func(*httptest.ResponseRecorder, *http.Request) {
		return func(rec *httptest.ResponseRecorder, _ *http.Request) {
			rec.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="x"`)
			rec.WriteHeader(http.StatusUnauthorized)
		}
	}
	redirect := func(rec *httptest.ResponseRecorder, r *http.Request) {
		http.Redirect(rec, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	}
	for name, answer := range map[string]func(*httptest.ResponseRecorder, *http.Request){
		"redirect": redirect,
		"redirect of the token endpoint": func(rec *httptest.ResponseRecorder, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/token") {
				redirect(rec, r)
				return
			}
			challenge("https://"+garHost+"/token")(rec, r)
		},
		"metadata":          challenge("http://169.254.169.254/token"),
		"loopback":          challenge("https://127.1/token"),
		"mapped":            challenge("https://[::ffff:10.0.0.1]/token"),
		"cluster":           challenge("https://kubernetes.default.svc./token"),
		"decimal":           challenge("https://2852039166/token"),
		"plain":             challenge("http://tokens.example/token"),
		"other port inside": challenge("https://localhost:6443/token"),
	} {
		w, asked := registryOf(t, answer)
		f := w.run().Of("registry")
		if f.Result != doctor.Unknown || f.Remedy == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if len(asked()) == 0 {
			t.Errorf("%s: nobody was asked", name)
		}
		for _, host := range asked() {
			if host != "https://"+garHost {
				t.Errorf("%s: %s was asked", name, host)
			}
		}
	}
}

// What a registry gives for the password is kept as well, and so is an answer that is no token.
func TestRegistryEchoesItsOwnToken(t *testing.T) {
	const token = "opaque-of-the-registry-0123456789"
	for name, given := range map[string]map[string]string{"token": {"token": token}, "other": {"refresh_token": token}} {
		w, _ := registryOf(t, func(rec *httptest.ResponseRecorder, r *http.Request) {
			switch sent := r.Header.Get("Authorization"); {
			case r.URL.Path == "/token":
				_ = json.NewEncoder(rec).Encode(given)
			case strings.HasPrefix(sent, "Bearer "):
				rec.WriteHeader(http.StatusForbidden)
				_ = json.NewEncoder(rec).Encode(map[string]any{"errors": []any{map[string]any{"code": "DENIED", "message": "no: " + sent[7:]}}})
			default:
				rec.Header().Set("WWW-Authenticate", `Bearer realm="https://`+garHost+`/token",service="x"`)
				rec.WriteHeader(http.StatusUnauthorized)
			}
		})
		report := w.run()
		f := report.Of("registry")
		if leaks(everythingIn(t, report), token) || f.Remedy == "" || f.Result == doctor.Pass {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
