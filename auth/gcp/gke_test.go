package gcp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const stsAudience = "identitynamespace:project.svc.id.goog:https://container.googleapis.com/v1/projects/project/locations/europe-west1/clusters/prod"

func TestInGKE(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-a", "member", gcp.ServiceAccountAnnotation, email("tenant-c")))
	w.inGKE()
	w.Cloud.GCP().SetServiceAccount(email("tenant-c"), cloudtest.GCPServiceAccount{
		WorkloadIdentityUsers: []string{"serviceAccount:project.svc.id.goog[tenant-a/member]"}})
	p := &gcp.Provider{}
	for range 2 {
		token, err := w.getFrom(t, p, "tenant-a", "gke")
		if err != nil {
			t.Fatal(err)
		}
		id, _ := w.Cloud.GCP().Identity(token.AccessToken())
		want := "principal://iam.googleapis.com/projects/" + number +
			"/locations/global/workloadIdentityPools/project.svc.id.goog/subject/ns/tenant-a/sa/gke"
		if !slices.Contains(id.Members, want) {
			t.Errorf("got the token of %+v", id)
		}
	}
	token, err := w.getFrom(t, p, "tenant-a", "member")
	if err != nil || token.ServiceAccountEmail() != email("tenant-c") {
		t.Errorf("got %v, %v", token, err)
	}
	if n := w.Cloud.Calls("gcp-metadata", ""); n != 3 {
		t.Errorf("the metadata server was asked %d times for three values", n)
	}
	for _, call := range w.Cloud.Log() {
		if call.Service == "gcp-sts" && call.Parameters["audience"] != stsAudience {
			t.Errorf("audience %q", call.Parameters["audience"])
		}
	}
	w.Cloud.GCP().SetServiceAccount(email("tenant-c"), cloudtest.GCPServiceAccount{})
	_, err = w.getFrom(t, p, "tenant-a", "member")
	testenv.CheckError(t, err, auth.ErrDenied, `"serviceAccount:project.svc.id.goog[tenant-a/member]"`)
}

func TestOutsideGKE(t *testing.T) {
	w := newEnvironment(t)
	p := &gcp.Provider{}
	_, err := w.getFrom(t, p, "tenant-a", "gke")
	testenv.CheckError(t, err, auth.ErrMisconfigured, gcp.WorkloadIdentityProviderAnnotation, "outside GKE",
		`"tenant-a/gke"`)
	// A virtual machine that is no node.
	p = &gcp.Provider{}
	w.Cloud.GCP().SetMetadata(&cloudtest.GCPMetadata{ProjectID: "project"})
	_, err = w.getFrom(t, p, "tenant-a", "gke")
	testenv.CheckError(t, err, auth.ErrMisconfigured, "cluster-location")
	w.inGKE()
	if _, err := w.getFrom(t, &gcp.Provider{}, "tenant-a", "gke"); err != nil {
		t.Error(err)
	}
	if n := w.Issuer.TokenRequests(); n != 1 {
		t.Errorf("%d tokens were requested", n)
	}
}

func TestMetadataThatCannotBeUsed(t *testing.T) {
	w := newEnvironment(t)
	w.inGKE()
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
	}{
		"throttled": {cloudtest.Fault{Status: 429, RetryAfter: "30"}, auth.ErrThrottled},
		"down": {cloudtest.Fault{Status: 500, Message: "GKE Metadata Server: Internal Server Error"},
			auth.ErrUnavailable},
		"cut":        {cloudtest.Fault{Cut: true}, auth.ErrUnavailable},
		"empty":      {cloudtest.Fault{Rewrite: func([]byte) []byte { return nil }}, auth.ErrUnavailable},
		"HTML":       {cloudtest.Fault{Body: "<html>hotspot login</html>"}, auth.ErrUnavailable},
		"path in it": {cloudtest.Fault{Rewrite: func([]byte) []byte { return []byte("a/../b") }}, auth.ErrUnavailable},
		"another origin": {cloudtest.Fault{Rewrite: func([]byte) []byte {
			return []byte("x:https://evil.example")
		}}, auth.ErrUnavailable},
		"10 MB": {cloudtest.Fault{Rewrite: func([]byte) []byte {
			return make([]byte, 10<<20)
		}}, auth.ErrUnavailable},
		"redirect": {cloudtest.Fault{Redirect: "http://evil.example/"}, auth.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			tc.fault.Service = "gcp-metadata"
			defer w.Cloud.AddFault(tc.fault)()
			_, err := w.get(t, "tenant-a", "gke")
			testenv.CheckError(t, err, tc.reason)
			if n := w.Cloud.Calls("gcp-sts", ""); n != 0 {
				t.Errorf("%d exchanges", n)
			}
		})
	}
}

// The server is asked three times at most, never before its Retry-After, and by
// its name: other clouds have servers at its address.
func TestMetadataIsAskedAgain(t *testing.T) {
	type answering func() (*http.Response, error)
	status := func(code int, retryAfter string) answering {
		return func() (*http.Response, error) {
			resp := answer(code, "p1")
			resp.Header = http.Header{"Metadata-Flavor": {"Google"}, "Retry-After": {retryAfter}}
			return resp, nil
		}
	}
	refusing := func(err error) answering {
		return func() (*http.Response, error) { return nil, &net.OpError{Op: "dial", Err: err} }
	}
	for name, tc := range map[string]struct {
		answer   answering
		failures int // after these the answers are good; zero means none is
		reason   provider.Reason
		text     string
		calls    int
		wait     time.Duration
	}{
		"404 in a pod's first seconds": {answer: status(404, ""), failures: 2, calls: 5},
		"404 forever": {answer: status(404, ""), calls: 3, reason: auth.ErrMisconfigured,
			text: `does not tell "project/project-id"`},
		"503 once":           {answer: status(503, ""), failures: 1, calls: 4},
		"503":                {answer: status(503, ""), calls: 3, reason: auth.ErrUnavailable},
		"429 for long":       {answer: status(429, "30"), calls: 1, reason: auth.ErrThrottled, wait: 30 * time.Second},
		"refused connection": {answer: refusing(syscall.ECONNREFUSED), calls: 3, reason: auth.ErrUnavailable},
		"unknown name": {answer: refusing(&net.DNSError{Err: "no such host", IsNotFound: true}), calls: 3,
			reason: auth.ErrMisconfigured, text: "no such host"},
		"another server": {answer: func() (*http.Response, error) { return answer(200, "p1"), nil }, calls: 1,
			reason: auth.ErrUnavailable, text: `"metadata.google.internal" is not a metadata server`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GCE_METADATA_HOST", "")
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				server := roundTripper(func(r *http.Request) (*http.Response, error) {
					calls++
					if r.URL.Host != "metadata.google.internal" {
						t.Errorf("asked %q", r.URL.Host)
					}
					if tc.failures == 0 || calls <= tc.failures {
						return tc.answer()
					}
					return status(200, "")()
				})
				_, err := (&gcp.Provider{}).GetAudiences(t.Context(), testenv.ServiceAccount("tenant-a", "gke"),
					&provider.Options{HTTPClient: &http.Client{Transport: server}})
				if tc.reason == "" && err != nil {
					t.Error(err)
				}
				if tc.reason != "" {
					testenv.CheckError(t, err, tc.reason, tc.text)
				}
				if wait := auth.RetryAfter(err); calls != tc.calls || wait != tc.wait {
					t.Errorf("%d calls, retry after %s, want %d, %s", calls, wait, tc.calls, tc.wait)
				}
			})
		})
	}
}

// Concurrent callers share the requests, and their failure outside GKE. Each
// leaves with its own context, and the others get the answer.
func TestMetadataIsLearnedOnce(t *testing.T) {
	values := map[string]string{"project-id": "p1", "cluster-location": "us-central1", "cluster-name": "c1"}
	for name, tc := range map[string]struct {
		status int
		want   error
		calls  int32
	}{
		"in GKE":  {http.StatusOK, nil, 3},
		"outside": {http.StatusForbidden, auth.ErrDenied, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				release := make(chan struct{})
				opts := &provider.Options{
					HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
						calls.Add(1)
						<-release
						resp := answer(tc.status, values[path.Base(r.URL.Path)])
						resp.Header = http.Header{"Metadata-Flavor": {"Google"}}
						return resp, nil
					})}}
				p := &gcp.Provider{}
				ask := func(ctx context.Context) error {
					_, err := p.GetAudiences(ctx, testenv.ServiceAccount("tenant-a", "gke"), opts)
					return err
				}
				var others, first sync.WaitGroup
				ctx, leave := context.WithCancel(t.Context())
				first.Go(func() {
					if err := ask(ctx); !errors.Is(err, context.Canceled) {
						t.Errorf("the first got %v", err)
					}
				})
				synctest.Wait()
				for range 50 {
					others.Go(func() {
						if err := ask(t.Context()); !errors.Is(err, tc.want) {
							t.Errorf("got %v", err)
						}
					})
				}
				synctest.Wait()
				leave()
				first.Wait()
				close(release)
				others.Wait()
				if n := calls.Load(); n != tc.calls {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

// No proxy ever stands between the program and the metadata server, and
// GCE_METADATA_HOST names another one.
func TestMetadataWithoutAProxy(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	t.Setenv("NO_PROXY", "")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		_,
			_ = w.Write([]byte(map[string]string{"project-id": "p1", "cluster-location": "us-central1",
			"cluster-name": "c1"}[name]))
	}))
	defer server.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	for _, proxy := range []*url.URL{nil, {Scheme: "http", Host: "127.0.0.1:1"}} {
		audiences, err := (&gcp.Provider{}).GetAudiences(t.Context(), testenv.ServiceAccount("tenant-a", "gke"),
			&provider.Options{ProxyURL: proxy})
		if err != nil || !slices.Equal(audiences, []string{"p1.svc.id.goog"}) {
			t.Errorf("with proxy %v: got %q, %v", proxy, audiences, err)
		}
	}
}

// A metadata server that hangs holds a caller for 5 s once. Then the failure is
// remembered, for longer each time, until the server answers.
func TestMetadataServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := map[string]string{"project-id": "p1", "cluster-location": "us-central1", "cluster-name": "c1"}
		var hangs atomic.Bool
		var calls atomic.Int32
		hangs.Store(true)
		opts := &provider.Options{
			HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				calls.Add(1)
				if hangs.Load() {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				resp := answer(http.StatusOK, values[path.Base(r.URL.Path)])
				resp.Header = http.Header{"Metadata-Flavor": {"Google"}}
				return resp, nil
			})}}
		p := &gcp.Provider{}
		ask := func() (time.Duration, error) {
			start := time.Now()
			_, err := p.GetAudiences(t.Context(), testenv.ServiceAccount("tenant-a", "gke"), opts)
			return time.Since(start), err
		}
		var together sync.WaitGroup
		for range 20 {
			together.Go(func() {
				took, err := ask()
				testenv.CheckError(t, err, auth.ErrUnavailable, "outside GKE set the annotation")
				if took > 5*time.Second {
					t.Errorf("a caller waited %s", took)
				}
			})
		}
		together.Wait()
		for round := range 8 {
			took, err := ask()
			wait := min(time.Second<<round, 30*time.Second)
			if took != 0 || !errors.Is(err, auth.ErrUnavailable) || auth.RetryAfter(err) != wait {
				t.Errorf("round %d: took %s, retry after %s, %v", round, took, auth.RetryAfter(err), err)
			}
			time.Sleep(wait) // of the bubble
			if took, err := ask(); took != 5*time.Second || err == nil {
				t.Errorf("round %d: the next request took %s, %v", round, took, err)
			}
		}
		if n := calls.Load(); n != 9 {
			t.Errorf("%d requests", n)
		}
		hangs.Store(false)
		time.Sleep(30 * time.Second)
		if _, err := ask(); err != nil {
			t.Error(err)
		}
	})
}
