package webhook_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Four requests at work with 16 MB each, the bodies of all others and two lists
// are half of the memory limit of the manifests.
func TestMemoryOfOneRequestIsBounded(t *testing.T) {
	h := newHandler(t, options())
	repeat := func(element string) string {
		return "[" + strings.Repeat(element+",", 1_900_000/(len(element)+1)) + element + "]"
	}
	env := `{"name":"a","env":[{}` + strings.Repeat(",{}", 499) + `]}`
	extra := &strings.Builder{}
	for i := range 190_000 {
		fmt.Fprintf(extra, `,"%x":[]`, i)
	}
	for name, object := range map[string]string{
		"container statuses": `"object":{"status":{"containerStatuses":` + repeat("{}") + `}}`,
		"managed fields":     `"object":{"metadata":{"managedFields":` + repeat("{}") + `}}`,
		"affinity terms":     `"object":{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` + repeat("{}") + `}}}}`,
		"variables":          `"object":{"spec":{"containers":[{"name":"a","env":` + repeat("{}") + `}]}}`,
		"arguments":          `"object":{"spec":{"containers":[{"name":"a","args":` + repeat(`""`) + `}]}}`,
		"containers":         `"object":{"spec":{"containers":` + repeat("{}") + `}}`,
		"volumes":            `"object":{"spec":{"volumes":` + repeat("{}") + `}}`,
		"many in each":       `"object":{"spec":{"containers":` + repeat(env) + `}}`,
		"groups":             `"userInfo":{"groups":` + repeat(`""`) + `}`,
		"extra":              `"userInfo":{"extra":{"x":[]` + extra.String() + `}}`,
		"namespace":          `"namespace":"` + strings.Repeat("n", 1_900_000) + `"`,
		"name": `"name":"` + strings.Repeat("n", 1_900_000) + `","object":{"spec":{"containers":` +
			repeat("{}")[:2000] + `{}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			body :=
				`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","operation":"CREATE","resource":{"version":"v1","resource":"pods"},` + object + `}}`
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			post(t, h, "application/json", []byte(body))
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
				t.Errorf("%d MiB for %d bytes", took>>20, len(body))
			}
		})
	}
}

func TestNamesOfTheRequestAreCut(t *testing.T) {
	var log strings.Builder
	o := options()
	o.Logger = funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{})
	o.Live = &bindings{err: errors.New(strings.Repeat("e", 10_000))}
	response := post(t, newHandler(t, o), "application/json", review(t, func(r *admissionv1.AdmissionRequest) {
		r.Namespace, r.Name = strings.Repeat("n", 10_000)+"\n", strings.Repeat("p", 10_000)
	}, `{}`))
	if response.Allowed || len(response.Result.Message) > 1000 || log.Len() == 0 || log.Len() > 2000 {
		t.Errorf("a message of %d bytes and a log of %d", len(response.Result.Message), log.Len())
	}
}

// caller sends requests, each from a connection of its own unless it has an
// address.
type caller struct {
	t       *testing.T
	h       http.Handler
	address string
	last    atomic.Int64
}

func (c *caller) call(body io.Reader) int32 {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = cmp.Or(c.address, fmt.Sprint("192.0.2.1:", c.last.Add(1)))
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		c.t.Error(err)
		return 0
	}
	return answer.Response.Result.Code
}

// stall starts a request that sends so many bytes and no more, until the test
// ends it.
func (c *caller) stall(size int) (end func()) {
	r, w := io.Pipe()
	go c.call(io.MultiReader(strings.NewReader(strings.Repeat(" ", size)), r))
	synctest.Wait()
	return func() { _ = w.Close(); synctest.Wait() }
}

func TestIdleConnectionsOccupyNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{t: t, h: newHandler(t, options())}
		for range 40 {
			defer c.stall(1)()
		}
		start := time.Now()
		if code := c.call(bytes.NewReader(review(t, nil, `{"spec":{"containers":[{"name":"a"}]}}`))); code != http.StatusOK ||
			time.Since(start) > 0 {
			t.Errorf("code %d after %s", code, time.Since(start))
		}
	})
}

func TestBodiesInMemoryAreBounded(t *testing.T) {
	const one = 1_900_000
	small := func() io.Reader { return bytes.NewReader(review(t, nil, `{"spec":{"containers":[{"name":"a"}]}}`)) }
	for name, test := range map[string]struct {
		address string
		stalled int
	}{
		"16 MiB of all connections": {"", 8},
		"4 MiB of one connection":   {"192.0.2.1:1", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, registry := options(), prometheus.NewRegistry()
				o.Registerer = registry
				c := &caller{t: t, h: newHandler(t, o), address: test.address}
				var ends []func()
				for range test.stalled {
					ends = append(ends, c.stall(one))
				}
				if code := c.call(strings.NewReader(strings.Repeat(" ", one))); code != http.StatusTooManyRequests {
					t.Errorf("a body that does not fit: %d", code)
				}
				if err := testutil.GatherAndCompare(registry,
					strings.NewReader(resultsHelp+"podidentity_webhook_pods_total{result=\"busy\"} 1\n"),
					"podidentity_webhook_pods_total"); err != nil {
					t.Error(err)
				}
				if code := c.call(small()); code != http.StatusOK {
					t.Errorf("a body that fits: %d", code)
				}
				if c.address = "192.0.2.2:1"; test.address != "" &&
					c.call(strings.NewReader(strings.Repeat(" ", one))) != http.StatusBadRequest {
					t.Error("another connection is refused too")
				}
				c.address = test.address
				for _, end := range ends {
					end()
				}
				if code := c.call(strings.NewReader(strings.Repeat(" ", one))); code != http.StatusBadRequest {
					t.Errorf("once the others have ended: %d", code)
				}
			})
		})
	}
}

// dial serves a connection of its own in memory, until the test ends.
func dial(t *testing.T, h http.Handler) net.Conn {
	t.Helper()
	client, conn := net.Pipe()
	listener := make(one, 1)
	listener <- conn
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // ends with the test
	t.Cleanup(func() { _ = server.Close() })
	return client
}

func TestAnswersThatAreNotReadOccupyNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, options(bind("b", "default")))
		many := strings.Repeat(`{"name":"a"},`, 400)
		body := review(t, nil, `{"spec":{"containers":[`+many+`{"name":"b"}]}}`)
		for range 20 {
			if _, err := fmt.Fprintf(dial(t, h),
				"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body),
				body); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		start := time.Now()
		c := &caller{t: t, h: h}
		if code := c.call(bytes.NewReader(body)); code != http.StatusOK || time.Since(start) > 0 {
			t.Errorf("code %d after %s", code, time.Since(start))
		}
		time.Sleep(time.Minute) // until the server gives up
	})
}

// lister is a live reader whose lists last until the test ends them.
type lister struct {
	client.Reader
	mu      sync.Mutex
	running map[string]int // by namespace
	end     chan struct{}
}

func (l *lister) List(ctx context.Context, _ client.ObjectList, opts ...client.ListOption) error {
	namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	count := func(n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running[namespace] += n
	}
	count(1)
	defer count(-1)
	select {
	case <-l.end:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lister) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.running)
}

func unbound(t *testing.T, namespace string, padding int) io.Reader {
	return bytes.NewReader(review(t, inNamespace(namespace),
		`{"spec":{"serviceAccountName":"unbound","containers":[{"name":"a"}]},"x":"`+strings.Repeat("x", padding)+`"}`))
}

func inNamespace(ns string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.Namespace = ns }
}

func TestLiveListsAreTwoAtATimeAndOneOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := &lister{running: map[string]int{}, end: make(chan struct{})}
		o := options(bind("b", "default"))
		o.Live = live
		c := &caller{t: t, h: newHandler(t, o)}
		var all sync.WaitGroup
		for _, namespace := range []string{"a", "a", "a", "a", "a", "b", "c", "d"} {
			all.Go(func() {
				if code := c.call(unbound(t, namespace, 0)); code != http.StatusOK {
					t.Errorf("the pod of namespace %q gets %d", namespace, code)
				}
			})
			synctest.Wait()
		}
		if got := live.counts(); !maps.Equal(got, map[string]int{"a": 1, "b": 1}) {
			t.Errorf("at a time: %v", got)
		}
		// A pod that is in the cache waits for none of them.
		if code := c.call(bytes.NewReader(review(t, nil, `{"spec":{"containers":[{"name":"a"}]}}`))); code != http.StatusOK {
			t.Errorf("a pod with a binding in the cache gets %d", code)
		}
		close(live.end)
		all.Wait()
	})
}

// slowLister takes 100 ms for a list.
type slowLister struct{ client.Reader }

func (slowLister) List(context.Context, client.ObjectList, ...client.ListOption) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

// Two namespaces with many pods delay the pods of others by a few lists, not by
// all of theirs.
func TestNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Live = slowLister{}
		c := &caller{t: t, h: newHandler(t, o)}
		var all sync.WaitGroup
		for i := range 160 {
			all.Go(func() { c.call(unbound(t, []string{"a", "b"}[i%2], 0)) })
		}
		synctest.Wait()
		for i := range 10 {
			all.Go(func() {
				start := time.Now()
				if code := c.call(unbound(t, fmt.Sprintf("victim%d", i), 0)); code != http.StatusOK ||
					time.Since(start) > time.Second {
					t.Errorf("victim %d gets %d after %s", i, code, time.Since(start))
				}
			})
		}
		all.Wait()
	})
}

// A namespace whose lists take long does not use up the memory for bodies.
func TestPodsThatWaitForTheListOfTheirNamespaceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := &lister{running: map[string]int{}, end: make(chan struct{})}
		o := options()
		o.Live = live
		c := &caller{t: t, h: newHandler(t, o)}
		var all sync.WaitGroup
		codes := make(chan int32, 3)
		for range 3 {
			all.Go(func() { codes <- c.call(unbound(t, "a", 1_000_000)) })
		}
		synctest.Wait()
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Errorf("the third pod of 1 MB gets %d", code)
		}
		close(live.end)
		all.Wait()
		if code := c.call(unbound(t, "a", 1_000_000)); code != http.StatusOK {
			t.Errorf("after the lists, a pod of 1 MB gets %d, want 200", code)
		}
	})
}

func TestListThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Live = &lister{running: map[string]int{}}
		start := time.Now()
		c := &caller{t: t, h: newHandler(t, o)}
		if code := c.call(unbound(t, "a", 0)); code != http.StatusInternalServerError || time.Since(start) != 10*time.Second {
			t.Errorf("%d after %s", code, time.Since(start))
		}
	})
}

// one is a listener with one connection.
type one chan net.Conn

func (o one) Accept() (net.Conn, error) {
	if conn, ok := <-o; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (o one) Close() error   { close(o); return nil }
func (o one) Addr() net.Addr { return &net.TCPAddr{} }

// exchange sends a request with a length that its body may lack, and returns
// the answer and the time until it came.
func exchange(t *testing.T, h http.Handler, length int, body []byte) (string, time.Duration) {
	t.Helper()
	defer time.Sleep(time.Second) // the server lingers after a failed request
	client := dial(t, h)
	start := time.Now()
	if _, err := fmt.Fprintf(client,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", length,
		body); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	took := time.Since(start)
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer), took
}

func TestStalledBodyIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, took := exchange(t, newHandler(t, options()), 1_000_000, []byte(`{"apiVersion"`))
		if took != 5*time.Second || !strings.Contains(answer, `"allowed":false`) {
			t.Errorf("after %s: %s", took, answer)
		}
	})
}

// slow is a live reader that answers after 8 s.
type slow struct{ *bindings }

func (s slow) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	select {
	case <-time.After(8 * time.Second):
		return s.bindings.List(ctx, list, opts...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestTimeLimitOfTheBodyDoesNotCoverTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Live = slow{&bindings{}}
		body := review(t, nil, `{"spec":{"containers":[{"name":"a"}]}}`)
		answer, took := exchange(t, newHandler(t, o), len(body), body)
		if took != 8*time.Second || !strings.Contains(answer, `"allowed":true`) {
			t.Errorf("after %s: %s", took, answer)
		}
	})
}
