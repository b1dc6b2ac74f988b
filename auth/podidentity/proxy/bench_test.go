package proxy_test

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/podidentity/proxy"
)

func readyProxy(b *testing.B) *proxy.Proxy {
	b.Helper()
	p := newProxy(b, &issuer{t: b})
	run(b, p)
	eventually(b, "the proxy has credentials", func() bool { return ask(b, p).status == http.StatusOK })
	return p
}

// BenchmarkHandler is the proxy without HTTP.
func BenchmarkHandler(b *testing.B) {
	p := readyProxy(b)
	r := request(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		p.ServeHTTP(discard{http.Header{}}, r)
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// Benchmark16Connections reports requests a second and the 99th percentile over kept connections.
func Benchmark16Connections(b *testing.B) {
	address := serve(b, readyProxy(b))[0]
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	durations := make([]time.Duration, b.N)
	next := make(chan int)
	var group sync.WaitGroup
	b.ResetTimer()
	for range 16 {
		group.Go(func() {
			for i := range next {
				begin := time.Now()
				fetchOnce(b, client, address)
				durations[i] = time.Since(begin)
			}
		})
	}
	for i := range b.N {
		next <- i
	}
	close(next)
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	slices.Sort(durations)
	b.ReportMetric(float64(durations[b.N*99/100].Microseconds()), "p99-µs")
}

func fetchOnce(b *testing.B, client *http.Client, address string) {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+address+"/v1/credentials", nil)
	if err != nil {
		b.Error(err)
		return
	}
	req.Header.Set("Authorization", secret)
	resp, err := client.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Error(resp.Status, err)
	}
}
