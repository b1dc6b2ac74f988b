package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/workloadid/workloadid/internal/podidentity"
)

func TestUnfitTokensAreNotReviewed(t *testing.T) {
	good := func() map[string]any {
		return map[string]any{"sub": "a/app/worker", "aud": []string{audience}, "exp": time.Now().Add(time.Minute).Unix(),
			"kubernetes.io": map[string]any{"pod": map[string]string{"uid": "u"}}}
	}
	for name, test := range map[string]struct {
		change func(claims map[string]any)
		want   int
	}{
		"all claims":       {func(map[string]any) {}, http.StatusOK},
		"another audience": {func(c map[string]any) { c["aud"] = "sts.amazonaws.com" }, http.StatusUnauthorized},
		"two audiences":    {func(c map[string]any) { c["aud"] = []string{audience, "other"} }, http.StatusUnauthorized},
		"no audience":      {func(c map[string]any) { delete(c, "aud") }, http.StatusUnauthorized},
		"expired":          {func(c map[string]any) { c["exp"] = time.Now().Unix() }, http.StatusUnauthorized},
		"no expiry":        {func(c map[string]any) { delete(c, "exp") }, http.StatusUnauthorized},
		"no pod":           {func(c map[string]any) { c["kubernetes.io"] = map[string]any{} }, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *fakeEnvironment) {
				w.trust(roles + "app")
				claims := good()
				test.change(claims)
				r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, podidentity.Path, http.NoBody)
				r.Header.Set("Authorization", "Bearer "+unsigned(claims))
				if a := send(t, w.server, r); a.status != test.want {
					t.Errorf("got %v %v", a, a.body)
				}
				if reviewed := w.reviews.Load() > 0; reviewed != (test.want == http.StatusOK) {
					t.Errorf("reviewed: %t", reviewed)
				}
			}, named(bindingOf("a", "app", roles+"app"), "app"))
		})
	}
}

func TestMalformedRequests(t *testing.T) {
	authorization := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", value) }
	}
	inFakeTime(t, func(w *fakeEnvironment) {
		token := w.token("a", "app", "worker")
		for name, test := range map[string]struct {
			method, path string
			body         io.Reader
			change       func(*http.Request)
			want         int
		}{
			"another path": {http.MethodPost, "/", nil, nil, http.StatusNotFound},
			"a path below": {http.MethodPost, podidentity.Path + "/x", nil, nil, http.StatusNotFound},
			"GET":          {http.MethodGet, podidentity.Path, nil, nil, http.StatusMethodNotAllowed},
			"a JSON bomb": {http.MethodPost, podidentity.Path, strings.NewReader(strings.Repeat("[", 1<<20)), nil,
				http.StatusBadRequest},
			"a body in chunks": {http.MethodPost, podidentity.Path, io.MultiReader(strings.NewReader("{}")), nil,
				http.StatusBadRequest},
			"no Authorization": {http.MethodPost, podidentity.Path, nil, func(r *http.Request) {
				r.Header.Del("Authorization")
			}, http.StatusUnauthorized},
			"two Authorizations": {http.MethodPost, podidentity.Path, nil, func(r *http.Request) {
				r.Header.Add("Authorization", "Bearer x")
			}, http.StatusUnauthorized},
			"another scheme": {http.MethodPost, podidentity.Path, nil, authorization(token), http.StatusUnauthorized},
			"no token":       {http.MethodPost, podidentity.Path, nil, authorization("Bearer "), http.StatusUnauthorized},
			"not a JWT": {http.MethodPost, podidentity.Path, nil, authorization("Bearer x"),
				http.StatusUnauthorized},
			"a million characters": {http.MethodPost, podidentity.Path, nil,
				authorization("Bearer " + strings.Repeat("a", 1<<20)), http.StatusUnauthorized},
			"more than one segment": {http.MethodPost, podidentity.Path, nil, authorization("Bearer " + token + " " + token),
				http.StatusUnauthorized},
			"the scheme in lower": {http.MethodPost, podidentity.Path, nil, authorization("bearer " + token),
				http.StatusForbidden},
		} {
			r := httptest.NewRequestWithContext(w.t.Context(), test.method, test.path, test.body)
			r.Header.Set("Authorization", "Bearer "+token)
			if test.change != nil {
				test.change(r)
			}
			if a := send(w.t, w.server, r); a.status != test.want {
				w.t.Errorf("%s: got %v", name, a)
			}
		}
	})
}

// An API server that hangs holds 64 reviews. The requests behind them are sent
// away when their time is up.
func TestReviewsInFlightAreBounded(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		end := make(chan struct{})
		w.change = func(*authenticationv1.TokenReview) error {
			<-end
			return errors.New("ended")
		}
		var all sync.WaitGroup
		var throttled atomic.Int64
		for i := range 200 {
			all.Go(func() {
				a := w.ask("a", "app", fmt.Sprint(i))
				if a.status == http.StatusServiceUnavailable && a.body["Code"] == "Throttled" && a.header.Get("Retry-After") != "" {
					throttled.Add(1)
				}
			})
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if reviews := w.reviews.Load(); reviews != 64 || throttled.Load() != 200-reviews {
			t.Errorf("%d reviews, %d requests throttled", reviews, throttled.Load())
		}
		close(end)
		all.Wait()
	})
}

// One namespace asks as fast as it can for 20 seconds, and delays no other.
func TestOneNamespaceCannotUseUpTheQuotaOfSTS(t *testing.T) {
	inFakeTime(t, func(w *fakeEnvironment) {
		w.trust(roles + "app")
		w.set(50*time.Millisecond, false)
		start := time.Now()
		var all sync.WaitGroup
		var pod atomic.Int64
		for range 64 {
			all.Go(func() {
				for time.Since(start) < 20*time.Second {
					a := w.ask("a", "app", fmt.Sprint(pod.Add(1)))
					if a.status == http.StatusServiceUnavailable && a.body["Code"] != "Throttled" ||
						a.status != http.StatusOK && a.header.Get("Retry-After") == "" {
						t.Errorf("got %v", a)
					}
					if a.status != http.StatusOK {
						time.Sleep(time.Second)
					}
				}
			})
		}
		time.Sleep(15 * time.Second)
		if a := w.ask("b", "app", "worker"); a.status != http.StatusOK {
			t.Errorf("another namespace: %v", a)
		}
		all.Wait()
		if n, most := w.cloud.Calls("sts", "AssumeRole"), 500+20*50+1; n > most {
			t.Errorf("%d AssumeRole, want %d at most", n, most)
		}
	}, named(bindingOf("a", "app", roles+"app"), "app"), named(bindingOf("b", "app", roles+"app"), "other"))
}
