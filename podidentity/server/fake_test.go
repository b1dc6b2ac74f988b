package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

// fakeEnvironment is a server in fake time. Its API server accepts tokens with
// the subject namespace/service account/pod, and requests to AWS are calls of
// the fake's handler, so that nothing waits for a network.
type fakeEnvironment struct {
	t       *testing.T
	cloud   *cloudtest.Cloud
	server  *server.Server
	reviews atomic.Int64
	kube    client.Client
	series  series
	events  recorder
	metrics *prometheus.Registry
	change  func(*authenticationv1.TokenReview) error // of the API server's answer; nil changes nothing

	ca []byte // of Options.CA

	mu      sync.Mutex
	latency time.Duration
	hangs   bool
}

// inFakeTime makes the cloud outside of the bubble, since it has a listener.
func inFakeTime(t *testing.T, run func(w *fakeEnvironment), objects ...client.Object) {
	cloud := testenv.Cloud(t)
	id, secret := cloud.AWS().AddUser(account, "server")
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_SESSION_TOKEN", "")
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/nothing")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/nothing")
	synctest.Test(t, func(t *testing.T) {
		w := &fakeEnvironment{t: t, cloud: cloud}
		w.start(objects)
		run(w)
	})
}

func (w *fakeEnvironment) start(objects []client.Object) {
	list := &v1alpha1.IAMRoleAllowList{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName},
		Spec: v1alpha1.IAMRoleAllowListSpec{
			Rules: []v1alpha1.AllowRule{{Namespaces: []string{"*"}, Roles: []string{"*"}}}}}
	kube := fake.NewClientBuilder().WithScheme(scheme(w.t)).WithObjects(append(objects, list)...).
		WithIndex(&v1alpha1.IAMBinding{}, "spec.serviceAccountRef.name", func(o client.Object) []string {
			b, _ := o.(*v1alpha1.IAMBinding)
			return []string{b.Spec.ServiceAccountRef.Name}
		}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object,
			_ ...client.CreateOption) error {
			review, ok := o.(*authenticationv1.TokenReview)
			if !ok {
				return errors.New("not imitated")
			}
			w.review(review)
			if w.change != nil {
				return w.change(review)
			}
			return nil
		}}).Build()
	var err error
	w.metrics = prometheus.NewRegistry()
	w.kube = kube
	w.server,
		err = server.New(server.Options{Client: kube, Series: &w.series, Events: &w.events,
		Audience: audience, Cluster: "prod",
		Cache: testenv.Cache(w.t, cache.WithPatience(5*time.Second)), Registerer: w.metrics,
		CA: func() []byte { return w.ca },
		AuthOptions: []auth.Option{auth.WithSTSRegion(region),
			auth.WithHTTPClient(&http.Client{Transport: roundTripper(w.roundTrip)})}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *fakeEnvironment) review(r *authenticationv1.TokenReview) {
	w.reviews.Add(1)
	claims, err := jwt.Parse(r.Spec.Token)
	if err != nil {
		w.t.Error(err)
		return
	}
	parts := strings.Split(claims.Subject, "/")
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{audience},
		User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:" + parts[0] + ":" + parts[1],
			Extra: map[string]authenticationv1.ExtraValue{
				"authentication.kubernetes.io/pod-name": {parts[2]}, "authentication.kubernetes.io/pod-uid": {"uid-" + parts[2]}},
		}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *fakeEnvironment) roundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	latency, hangs := w.latency, w.hangs
	w.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	time.Sleep(latency) // in fake time
	r.Host = r.URL.Host
	recorder := httptest.NewRecorder()
	w.cloud.Handler().ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

func (w *fakeEnvironment) set(latency time.Duration, hangs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latency, w.hangs = latency, hangs
}

func (w *fakeEnvironment) ask(namespace, serviceAccount, pod string) answer {
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, podidentity.Path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+w.token(namespace, serviceAccount, pod))
	return send(w.t, w.server, r)
}

func (w *fakeEnvironment) token(namespace, serviceAccount, pod string) string {
	return unsigned(map[string]any{"sub": namespace + "/" + serviceAccount + "/" + pod, "aud": audience,
		"exp":           time.Now().Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{"pod": map[string]string{"uid": "uid-" + pod}}})
}

func unsigned(claims map[string]any) string {
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	return "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
}

func (w *fakeEnvironment) trust(role string) { w.trustFor(role, "") }

func (w *fakeEnvironment) trustFor(role, externalID string) {
	w.cloud.AWS().SetRole(role, cloudtest.Trust{Principals: []string{"arn:aws:iam::" + account + ":user/server"},
		TagSession: true, ExternalID: externalID})
}

func named(b *v1alpha1.IAMBinding, name string) *v1alpha1.IAMBinding {
	b.Name, b.UID = name, types.UID("uid-"+name)
	return b
}

// STS is down for half an hour, in the worst moment: just before the proxy
// renews, with 35 minutes left. The server waits for STS a few seconds and then
// answers with what it has.
func TestOutageJustBeforeARenewal(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trust(roles + "app")
		first := w.ask("a", "app", "worker")
		time.Sleep(25 * time.Minute)
		w.set(0, true)
		for range 30 {
			start := time.Now()
			a := w.ask("a", "app", "worker")
			if took := time.Since(start); a.status != http.StatusOK || a.body["AccessKeyId"] != first.body["AccessKeyId"] ||
				took > 6*time.Second {
				t.Fatalf("got %v after %s", a, took)
			}
			time.Sleep(time.Minute - time.Since(start))
		}
		expiry, err := time.Parse(time.RFC3339, first.body["Expiration"])
		if left := time.Until(expiry); err != nil || left > 5*time.Minute || left < time.Minute {
			t.Errorf("after the outage %s are left", left)
		}
		w.set(0, false)
		time.Sleep(time.Minute)
		if a := w.ask("a", "app", "worker"); a.status != http.StatusOK || a.body["AccessKeyId"] == first.body["AccessKeyId"] {
			t.Errorf("after the outage: %v", a)
		}
	}, named(bindingOf("a", "app", roles+"app"), "app"))
}

// A proxy that renews with 35 minutes left gets new credentials.
func TestRenewal(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trust(roles + "app")
		first := w.ask("a", "app", "worker")
		time.Sleep(23 * time.Minute)
		if a := w.ask("a", "app", "worker"); a.body["AccessKeyId"] != first.body["AccessKeyId"] {
			t.Error("new credentials too early")
		}
		time.Sleep(2 * time.Minute)
		if a := w.ask("a", "app", "worker"); a.status != http.StatusOK || a.body["AccessKeyId"] == first.body["AccessKeyId"] {
			t.Errorf("got %v", a)
		}
	}, named(bindingOf("a", "app", roles+"app"), "app"))
}

// For ten minutes, each of 200 pods of a broken role asks every ten seconds.
func TestBrokenRoleForTenMinutes(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		const minutes, pods = 10, 200
		for range minutes * 6 {
			for pod := range pods {
				if a := w.ask("a", "app", fmt.Sprintf("worker-%d", pod)); a.status != http.StatusForbidden ||
					a.body["Code"] != "AccessDenied" || strings.Contains(a.body["Message"], "user/server") {
					t.Fatalf("got %v %v", a, a.body)
				}
			}
			time.Sleep(10 * time.Second)
		}
		calls := w.cloud.Calls("sts", "AssumeRole")
		t.Logf("%d calls in %d minutes", calls, minutes)
		if calls > 6*minutes {
			t.Errorf("%d calls in %d minutes", calls, minutes)
		}
		w.trust(roles + "app")
		time.Sleep(time.Minute)
		if a := w.ask("a", "app", "worker-0"); a.status != http.StatusOK {
			t.Errorf("once the role trusts the server: %v", a)
		}
	}, named(bindingOf("a", "app", roles+"app"), "app"))
}

// Pods that find no slot of their namespace come back at different times.
func TestThrottledPodsSpread(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		w.set(0, true)
		seen := map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				a := w.ask("a", "app", fmt.Sprintf("worker-%d", i))
				mu.Lock()
				defer mu.Unlock()
				if a.body["Code"] == "Throttled" {
					seen[a.header.Get("Retry-After")]++
				}
			})
		}
		all.Wait()
		if len(seen) < 3 {
			t.Errorf("pods were sent away for %v seconds", seen)
		}
	}, named(bindingOf("a", "app", roles+"app"), "app"))
}

// An API server that answers less than it should proves no pod.
func TestReviewsThatProveNoPod(t *testing.T) {
	const podName, podUID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
	for name, test := range map[string]struct {
		change func(*authenticationv1.TokenReviewStatus)
		want   int
	}{
		"a whole answer": {func(*authenticationv1.TokenReviewStatus) {}, http.StatusOK},
		"not authenticated": {func(s *authenticationv1.TokenReviewStatus) {
			s.Authenticated = false
		}, http.StatusUnauthorized},
		"no audiences": {func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil }, http.StatusUnauthorized},
		"another audience": {func(s *authenticationv1.TokenReviewStatus) {
			s.Audiences = []string{"x"}
		}, http.StatusUnauthorized},
		"no name of a pod": {func(s *authenticationv1.TokenReviewStatus) {
			delete(s.User.Extra, podName)
		}, http.StatusUnauthorized},
		"no UID of a pod": {func(s *authenticationv1.TokenReviewStatus) {
			delete(s.User.Extra, podUID)
		}, http.StatusUnauthorized},
		"two UIDs": {func(s *authenticationv1.TokenReviewStatus) {
			s.User.Extra[podUID] = []string{"a", "b"}
		}, http.StatusUnauthorized},
		"a user": {func(s *authenticationv1.TokenReviewStatus) {
			s.User.Username = "a:app"
		}, http.StatusUnauthorized},
		"half a ServiceAccount": {func(s *authenticationv1.TokenReviewStatus) {
			s.User.Username = "system:serviceaccount:a"
		}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *fakeEnvironment) {
				w.trust(roles + "app")
				w.change = func(r *authenticationv1.TokenReview) error {
					test.change(&r.Status)
					return nil
				}
				if a := w.ask("a", "app", "worker"); a.status != test.want {
					t.Errorf("got %v", a)
				}
			}, named(bindingOf("a", "app", roles+"app"), "app"))
		})
	}
}

// The API server decides on each request, also for a token that it accepted a
// moment ago and credentials in the cache.
func TestEachRequestIsReviewed(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trust(roles + "app")
		if a := w.ask("a", "app", "worker"); a.status != http.StatusOK {
			t.Fatalf("got %v", a)
		}
		w.change = func(r *authenticationv1.TokenReview) error {
			r.Status = authenticationv1.TokenReviewStatus{Error: "the pod is gone"}
			return nil
		}
		if a := w.ask("a", "app", "worker"); a.status != http.StatusUnauthorized || w.reviews.Load() != 2 {
			t.Errorf("got %v after %d reviews", a, w.reviews.Load())
		}
	}, named(bindingOf("a", "app", roles+"app"), "app"))
}

func TestAPIServerDown(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		w.change = func(*authenticationv1.TokenReview) error { return errors.New("connection refused by 10.0.0.1") }
		a := w.ask("a", "app", "worker")
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" ||
			strings.Contains(a.body["Message"], "10.0.0.1") {
			t.Errorf("got %v %v %v", a, a.header, a.body)
		}
	})
}

// Metrics have one label, whose values are few whatever pods and AWS say.
func TestMetrics(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trust(roles + "app")
		w.ask("a", "app", "worker")
		w.ask("a", "other", "worker")
		w.ask("a", "broken", "worker")
		families, err := w.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for _, f := range families {
			if f.GetType() != dto.MetricType_HISTOGRAM {
				got[f.GetName()] = uint64(len(f.GetMetric()))
				continue
			}
			for _, m := range f.GetMetric() {
				if len(m.GetLabel()) != 1 || m.GetLabel()[0].GetName() != "result" {
					t.Errorf("%s has the labels %v", f.GetName(), m.GetLabel())
				}
				got[strings.TrimPrefix(f.GetName(), "podidentity_server_")+" "+
					m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
		const requests = "request_duration_seconds "
		want := map[string]uint64{requests + "Issued": 1, requests + "NotBound": 1, requests + "RoleNotAssumable": 1,
			"podidentity_build_info": 1, "podidentity_server_certificate_expiry_timestamp_seconds": 1,
			"podidentity_server_connections": 1, "podidentity_server_evicted_connections_total": 1,
			"token_review_duration_seconds success": 3}
		if !maps.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	}, named(bindingOf("a", "app", roles+"app"), "app"), named(bindingOf("a", "broken", roles+"missing"), "broken"))
}

// A binding that was stored without the CRD's validation cannot replace a tag
// of the server.
func TestUserTagsCannotReplaceOurs(t *testing.T) {
	for name, test := range map[string]struct {
		key  string
		want int
	}{
		"the same key":        {"kubernetes-namespace", http.StatusOK},
		"a key of other case": {"Kubernetes-Namespace", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			b := named(bindingOf("a", "app", roles+"app"), "app")
			b.Spec.AWS.SessionTags = map[string]v1alpha1.TagValue{test.key: "kube-system"}
			inFakeTime(t, func(w *fakeEnvironment) {
				w.trust(roles + "app")
				a := w.ask("a", "app", "worker")
				if a.status != test.want {
					t.Fatalf("got %v %v", a, a.body)
				}
				if id, ok := w.cloud.AWS().Identity(a.body["AccessKeyId"]); ok && id.Tags["kubernetes-namespace"] != "a" {
					t.Errorf("the tags are %v", id.Tags)
				}
			}, b)
		})
	}
}

var pods = flag.Int("podidentity.pods", 1000, "pods of the test of a warm-up")

// All pods of 20 namespaces ask at once, STS takes 50 ms, and a pod that gets
// 503 comes back when Retry-After says.
func TestWarmUp(t *testing.T) {
	const namespaces = 20
	var objects []client.Object
	for n := range namespaces {
		ns := fmt.Sprintf("ns-%d", n)
		objects = append(objects, named(bindingOf(ns, "app", roles+ns), "app"))
	}
	inFakeTime(t, func(w *fakeEnvironment) {
		for n := range namespaces {
			w.trust(fmt.Sprintf("%sns-%d", roles, n))
		}
		w.set(50*time.Millisecond, false)
		start, retries := time.Now(), atomic.Int64{}
		var all sync.WaitGroup
		for i := range *pods {
			all.Go(func() {
				for {
					a := w.ask(fmt.Sprintf("ns-%d", i%namespaces), "app", fmt.Sprintf("worker-%d", i))
					if a.status == http.StatusOK {
						return
					}
					if a.status != http.StatusServiceUnavailable {
						t.Errorf("got %v", a)
						return
					}
					retries.Add(1)
					wait, err := time.ParseDuration(a.header.Get("Retry-After") + "s")
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(wait)
				}
			})
		}
		all.Wait()
		took := time.Since(start)
		t.Logf("%d pods in %d namespaces: %s, %d TokenReviews, %d AssumeRole, %d retries", *pods, namespaces, took,
			w.reviews.Load(), w.cloud.Calls("sts", "AssumeRole"), retries.Load())
		if n := w.cloud.Calls("sts", "AssumeRole"); n != *pods {
			t.Errorf("%d AssumeRole", n)
		}
		if limit := 5*time.Second + time.Duration(*pods)*2*time.Millisecond; took > limit {
			t.Errorf("it took %s, want less than %s", took, limit)
		}
	}, objects...)
}

// An exchange that ends after its binding was deleted leaves no series.
func TestLateExchangeLeavesNoSeries(t *testing.T) {
	b := named(bindingOf("a", "app", roles+"app"), "app")
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trust(roles + "app")
		w.set(2*time.Second, false)
		var all sync.WaitGroup
		all.Go(func() { w.ask("a", "app", "worker") })
		time.Sleep(time.Second)
		if err := w.kube.Delete(w.t.Context(), b); err != nil {
			t.Error(err)
		}
		all.Wait()
		if _, deleted := w.series.deleted.Load("IAMBinding a/app credentials"); !deleted {
			t.Error("the series stay")
		}
	}, b)
}
