package gcppool_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/storetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/gcppool"
)

const (
	name    = "projects/123456789/locations/global/workloadIdentityPools/my-pool/providers/my-cluster"
	cluster = "https://kubernetes.default.svc"
	email   = "publisher@my-project.iam.gserviceaccount.com"
	keyA    = `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"a","n":"sXch","e":"AQAB"}]}`
	keyB    = `{"keys":[{"kty":"EC","alg":"ES256","use":"sig","kid":"b","x":"MKBC","y":"4Etl","crv":"P-256"}]}`
)

type environment struct {
	cloud  *cloudtest.Cloud
	client *http.Client
	token  string
	opts   gcppool.Options
}

// newEnvironment reaches the cloud in memory, so that tests can use the clock
// of synctest.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{cloud: testenv.Cloud(t)}
	w.set(cloudtest.WorkloadIdentityProvider{})
	w.token = w.cloud.GCP().IssueAccessToken(email)
	w.client = &http.Client{Transport: inMemory{w.cloud.Handler()}}
	w.opts = gcppool.Options{TokenSource: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: w.token}),
		HTTPClient: w.client}
	return w
}

func (w *environment) set(p cloudtest.WorkloadIdentityProvider) {
	p.Issuer, p.Admins = cluster, []string{"serviceAccount:" + email}
	w.cloud.GCP().SetWorkloadIdentityProvider(name, p)
}

type inMemory struct{ http.Handler }

func (h inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	resp := recorder.Result()
	resp.Request = r
	return resp, nil
}

func (w *environment) open(t *testing.T) *gcppool.Store {
	t.Helper()
	store, err := gcppool.Open(name, w.opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func read(t *testing.T, store issuer.Store, path string) (content, version string) {
	t.Helper()
	b, version, err := store.Read(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), version
}

func TestStore(t *testing.T) {
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) { storetest.Check(t, w.open(t)) })
}

func TestUploadWaitsForItsOperation(t *testing.T) {
	running := func(body []byte) []byte {
		return bytes.Replace(body, []byte(`"done": true`), []byte(`"done": false`), 1)
	}
	for title, tc := range map[string]struct {
		fault cloudtest.Fault
		polls int
		want  string
	}{
		"that runs for a while": {cloudtest.Fault{Times: 3, Rewrite: running}, 4, ""},
		"that never ends":       {cloudtest.Fault{Rewrite: running}, 0, "timed out"},
		"that fails": {cloudtest.Fault{Rewrite: func([]byte) []byte {
			return []byte(`{"done":true,"error":{"code":3,"message":"Invalid JWKS."}}`)
		}}, 1, "Invalid JWKS. (code 3)"},
		"that climbs out": {cloudtest.Fault{Times: 1, Rewrite: func([]byte) []byte {
			return []byte(`{"name":"` + name + `/operations/../../x"}`)
		}}, 1, "it names no operation"},
		"that lies elsewhere": {cloudtest.Fault{Times: 1, Rewrite: func([]byte) []byte {
			return []byte(`{"name":"projects/1/secrets/x"}`)
		}}, 1, "it names no operation"},
	} {
		t.Run(title, func(t *testing.T) {
			w := newEnvironment(t)
			tc.fault.Service, tc.fault.Action = "gcp-iam", "providers.operations.get"
			w.cloud.AddFault(tc.fault)
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := w.open(t).Write(t.Context(), issuer.KeysFile, []byte(keyA), "")
				if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				if n := w.cloud.Calls("gcp-iam", "providers.operations.get"); tc.polls != 0 && n != tc.polls || n > 20 {
					t.Errorf("%d polls", n)
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

func TestOtherFilesStayInTheProcess(t *testing.T) {
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		store := w.open(t)
		if _, _, err := store.Read(t.Context(), issuer.RecordFile); !errors.Is(err, issuer.ErrNotExist) {
			t.Errorf("record: %v", err)
		}
		content, version := read(t, store, issuer.DiscoveryFile)
		if want := `{"issuer":"` + cluster + `"}`; content != want {
			t.Errorf("the discovery document is %s, want %s", content, want)
		}
		for path, version := range map[string]string{issuer.RecordFile: "", issuer.DiscoveryFile: version} {
			if err := store.Write(t.Context(), path, []byte("{}"), version); err != nil {
				t.Error(err)
			}
			if err := store.Write(t.Context(), path, []byte("[]"), version); !errors.Is(err, issuer.ErrChanged) {
				t.Errorf("%s: old version: %v", path, err)
			}
			if content, _ := read(t, store, path); content != "{}" {
				t.Errorf("%s: %s", path, content)
			}
		}
		if n := w.cloud.Calls("gcp-iam", ""); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		set    func(w *environment)
		reason provider.Reason
		want   []string
	}{
		"no permission": {func(w *environment) {
			w.cloud.GCP().SetWorkloadIdentityProvider(name, cloudtest.WorkloadIdentityProvider{Issuer: cluster})
		}, provider.ErrDenied, []string{"PERMISSION_DENIED", "grant roles/iam.workloadIdentityPoolAdmin"}},
		"no provider": {func(w *environment) {
			w.cloud.GCP().RemoveWorkloadIdentityProvider(name)
			w.cloud.GCP().SetIAMViewers("serviceAccount:" + email)
		}, provider.ErrMisconfigured, []string{"NOT_FOUND", "create the provider"}},
		"deleted provider": {func(w *environment) { w.set(cloudtest.WorkloadIdentityProvider{Deleted: true}) },
			provider.ErrMisconfigured, []string{"the provider is deleted"}},
		"expired token": {func(w *environment) {
			w.opts.TokenSource = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "expired-" + w.token})
		}, provider.ErrDenied, []string{"UNAUTHENTICATED", "check the application default credentials"}},
		"token source that fails": {func(w *environment) {
			w.opts.TokenSource = failingSource{&oauth2.RetrieveError{Response: &http.Response{StatusCode: 400},
				Body: []byte(w.token), ErrorCode: "invalid_grant"}}
		}, provider.ErrUnavailable, []string{`no access token: the token service answers with HTTP 400, "invalid_grant"`}},
		"redirect": {func(w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "gcp-iam", Redirect: "https://attacker.example/"})
		}, provider.ErrUnavailable, []string{"refused to follow a redirect"}},
		"token in the answer": {func(w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "gcp-iam", Status: 400, Message: "bad token " + w.token})
		}, provider.ErrMisconfigured, []string{"INVALID_ARGUMENT"}},
		"an answer of a proxy": {func(w *environment) {
			w.cloud.Handle("iam.googleapis.com", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				http.Error(rw, w.token, http.StatusForbidden)
			}))
		}, provider.ErrUnavailable, []string{"not one of Google"}},
		"oversized answer": {func(w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "gcp-iam", Rewrite: func([]byte) []byte {
				return make([]byte, issuer.MaxFile+1)
			}})
		}, provider.ErrUnavailable, []string{"larger than 1048576 bytes"}},
		"half an answer": {func(w *environment) {
			w.cloud.AddFault(cloudtest.Fault{Service: "gcp-iam", Rewrite: func(b []byte) []byte { return b[:len(b)/2] }})
		}, provider.ErrUnavailable, []string{"not the JSON object"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			tc.set(w)
			synctest.Test(t, func(t *testing.T) {
				_, _, readErr := w.open(t).Read(t.Context(), issuer.KeysFile)
				for _, err := range []error{readErr, w.open(t).Write(t.Context(), issuer.KeysFile, []byte(keyA), "")} {
					storetest.CheckRefused(t, err, w.token, tc.reason, tc.want...)
				}
			})
		})
	}
}

type failingSource struct{ err error }

func (s failingSource) Token() (*oauth2.Token, error) { return nil, s.err }

func TestApplicationDefaultCredentials(t *testing.T) {
	w := newEnvironment(t)
	file := t.TempDir() + "/adc.json"
	writeFile(t, file, w.cloud.GCP().AddUser("person@example.com"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	w.cloud.GCP().SetWorkloadIdentityProvider(name,
		cloudtest.WorkloadIdentityProvider{Issuer: cluster, Admins: []string{"user:person@example.com"}})
	store, err := gcppool.Open("//iam.googleapis.com/"+name, gcppool.Options{HTTPClient: w.cloud.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if content, _ := read(t, store, issuer.DiscoveryFile); content != `{"issuer":"`+cluster+`"}` {
		t.Errorf("got %s", content)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, bad := range []string{"",
		"projects/my-project/locations/global/workloadIdentityPools/my-pool/providers/my-cluster",
		"projects/1/locations/global/workloadIdentityPools/my-pool", name + "/operations/x", name + "?a=b",
		"https://iam.example/" + name,
		strings.Replace(name, "my-pool", "../my-pool", 1)} {
		t.Run(bad, func(t *testing.T) {
			if _, err := gcppool.Open(bad, gcppool.Options{}); err == nil ||
				!strings.Contains(err.Error(), "is not the name of a provider") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
