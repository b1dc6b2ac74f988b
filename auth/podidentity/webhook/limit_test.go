package webhook_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The limit of eight requests in flight at 16 MB each is half of the memory limit of the manifests.
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
		"name":               `"name":"` + strings.Repeat("n", 1_900_000) + `","object":{"spec":{"containers":` + repeat("{}")[:2000] + `{}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","operation":"CREATE","resource":{"version":"v1","resource":"pods"},` + object + `}}`
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

func TestRequestWaitsForASlotBeforeItsBodyIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, options())
		call := func(ctx context.Context, body io.Reader) {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		stalled, end := io.Pipe()
		for range 8 {
			go call(t.Context(), stalled)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ninth := strings.NewReader("{}")
		if call(ctx, ninth); ctx.Err() == nil || ninth.Len() == 0 {
			t.Error("the ninth request has not waited")
		}
		_ = end.Close()
		synctest.Wait()
		if call(t.Context(), ninth); ninth.Len() > 0 {
			t.Error("the slots are not free")
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

// exchange sends a request with a length that its body may lack, and returns the answer and the time until it came.
func exchange(t *testing.T, h http.Handler, length int, body []byte) (string, time.Duration) {
	t.Helper()
	defer time.Sleep(time.Second) // the server lingers after a failed request
	client, conn := net.Pipe()
	listener := make(one, 1)
	listener <- conn
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // ends with the test
	defer server.Close()      //nolint:errcheck // the same
	start := time.Now()
	if _, err := fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", length, body); err != nil {
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
