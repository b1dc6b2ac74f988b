package relay_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	bodyLimit      = 3 << 20
	bodiesInFlight = 21 // of 3 MB each, in 64 MB
)

// unfinished is a body whose last byte never comes.
type unfinished struct {
	content io.Reader
	sent    func() // once all else is sent
	stop    <-chan struct{}
}

func (u *unfinished) Read(p []byte) (int, error) {
	n, err := u.content.Read(p)
	if err == io.EOF {
		u.sent()
		<-u.stop
	}
	return n, err
}

// hold sends unfinished bodies over one connection, until stop. It returns once each is sent or answered, and how many got 429.
func (w *world) hold(t *testing.T, c *http.Client, header http.Header, streams int) (refused int, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	content := bytes.Repeat([]byte("x"), bodyLimit-10) // one for all: the heap is measured
	answers, settled := make(chan int, streams), sync.WaitGroup{}
	all := sync.WaitGroup{}
	settled.Add(streams)
	for range streams {
		all.Go(func() {
			once := sync.OnceFunc(settled.Done)
			defer once()
			body := &unfinished{bytes.NewReader(content), once, ctx.Done()}
			request, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.relay.URL+"/api", body)
			request.Header = header
			answer, err := c.Do(request)
			if err != nil {
				return
			}
			_ = answer.Body.Close()
			if answer.Header.Get("Retry-After") != "" {
				answers <- answer.StatusCode
			}
		})
	}
	settled.Wait()
	for range len(answers) {
		if <-answers == http.StatusTooManyRequests {
			refused++
		}
	}
	return refused, func() { cancel(); all.Wait() }
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse) >> 20
}

// A made-up token reaches no hub before its body is complete. An agent's certificate still works meanwhile, and the token does afterwards.
func TestUnknownClientHoldsLittleMemory(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client(t, nil)
	cert := w.ca.issue(t, nil)
	w.get(t, nil, bearer("made-up"))
	before := heap()
	refused, stop := w.hold(t, c, bearer("made-up"), 100)
	if grew := heap() - before; grew > 100 {
		t.Errorf("one connection without a valid credential holds %d MB", grew)
	}
	if refused != 100-bodiesInFlight {
		t.Errorf("%d of 100 bodies are refused", refused)
	}
	a := w.send(t, nil, http.MethodPost, "/api", strings.NewReader(strings.Repeat("x", bodyLimit)), bearer("made-up"))
	a.expect(t, http.StatusTooManyRequests, "try again later")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if a := w.get(t, nil, bearer("made-up")); a.code != http.StatusOK {
		t.Errorf("a token without body: %+v", a)
	}
	if a := w.send(t, cert, http.MethodPost, "/api", strings.NewReader(strings.Repeat("x", bodyLimit)), nil); a.code != http.StatusOK {
		t.Errorf("an agent with a certificate: %+v", a)
	}
	stop()
	expectReleased(t, func() answered {
		return w.send(t, nil, http.MethodPost, "/api", strings.NewReader(strings.Repeat("x", bodyLimit)), bearer("a"))
	})
}

func expectReleased(t *testing.T, send func() answered) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	a := send()
	for ; a.code != http.StatusOK && time.Now().Before(deadline); a = send() { // the relay sees the end of a stream a little later
	}
	if a.code != http.StatusOK {
		t.Errorf("the memory of requests that ended is still taken: %+v", a)
	}
}

// One agent that fills the memory of certificates does not keep another cluster from its join.
func TestAgentsDoNotTakeTheMemoryOfTokens(t *testing.T) {
	w := newWorld(t, nil)
	refused, stop := w.hold(t, w.client(t, w.ca.issue(t, nil)), nil, bodiesInFlight+1)
	defer stop()
	if refused != 1 {
		t.Errorf("%d bodies are refused", refused)
	}
	if a := w.send(t, nil, http.MethodPost, "/api", strings.NewReader("x"), bearer("a")); a.code != http.StatusOK {
		t.Errorf("a token: %+v", a)
	}
}

// The budget is free again after each answer, also that to a body which is refused.
func TestBodiesAreCountedOnlyInFlight(t *testing.T) {
	w := newWorld(t, nil)
	for range 3 * bodiesInFlight {
		if a := w.send(t, nil, http.MethodPost, "/api", strings.NewReader(strings.Repeat("x", bodyLimit)), bearer("a")); a.code != http.StatusOK {
			t.Fatalf("answer %+v", a)
		}
		body := io.LimitReader(neverEnding{}, bodyLimit+1) // of unknown length
		w.send(t, nil, http.MethodPost, "/api", body, bearer("a")).expect(t, http.StatusRequestEntityTooLarge, "limit")
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// A watch would hold its body for as long as it lasts.
func TestWatchWithABodyIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	cert := w.ca.issue(t, nil)
	for name, body := range map[string]io.Reader{"known length": strings.NewReader("x"), "unknown length": io.LimitReader(neverEnding{}, 1)} {
		t.Run(name, func(t *testing.T) {
			w.send(t, cert, http.MethodGet, "/api?watch=1", body, nil).expect(t, http.StatusBadRequest, "no body")
			if w.got(t) != nil {
				t.Error("the hub got it")
			}
		})
	}
}
