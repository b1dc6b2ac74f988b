package soak

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"
)

// stats are those of a cloud in a phase.
type stats struct {
	calls, hits, exchanges, failedExchanges atomic.Int64
	latencies                               histogram

	mu       sync.Mutex
	failures map[string]int
}

func (s *stats) hit(took time.Duration) {
	s.hits.Add(1)
	s.latencies.add(took)
}

func (s *stats) fail(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == nil {
		s.failures = map[string]int{}
	}
	s.failures[reason]++
}

func (s *stats) failed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	for reason, n := range s.failures {
		parts = append(parts, fmt.Sprintf("%s %d", reason, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// histogram has eight buckets for each doubling, so that a percentile is off by an eighth at most.
type histogram [64 * 8]atomic.Int64

func (h *histogram) add(d time.Duration) { h[bucket(uint64(max(0, d)))].Add(1) }

func bucket(n uint64) int {
	if n < 8 {
		return int(n)
	}
	shift := bits.Len64(n) - 4
	return shift*8 + int(n>>shift)
}

// least is the smallest number in a bucket.
func least(bucket int) time.Duration {
	if bucket < 16 {
		return time.Duration(bucket)
	}
	return time.Duration((8 + bucket%8) << (bucket/8 - 1))
}

func (h *histogram) percentile(p int64) string {
	var all, seen int64
	for i := range h {
		all += h[i].Load()
	}
	for i := range h {
		if seen += h[i].Load(); all > 0 && seen*100 >= all*p {
			return least(i).Round(100 * time.Nanosecond).String()
		}
	}
	return "-"
}

// report is the table.
func (w *world) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nsoak: %d tenants, %d calls a second, %s, credentials kept for %s, seed %d\n\n",
		len(w.tenants), *soakRate, *soakTime, w.maxDuration, *soakSeed)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "phase\tcloud\tcalls\thits\texchanges\tof them failed\tp50 of hits\tp99\tcalls that failed")
	for _, p := range w.phases {
		for _, s := range w.allSides {
			x := p.of(s)
			fmt.Fprintf(table, "%s (%s)\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", p.name, p.took.Round(time.Second), s.name,
				x.calls.Load(), x.hits.Load(),
				x.exchanges.Load(), x.failedExchanges.Load(), x.latencies.percentile(50), x.latencies.percentile(99), x.failed())
		}
	}
	_ = table.Flush() // into memory
	fmt.Fprintf(&b, "\n%s\n%d changes of tenants, %d credentials were used at their service; "+
		"whoever gave up was let go within %s; %d calls were left out because %d of their cloud were waiting; "+
		"the machine left this process without a processor for at most %s\n",
		w.observer.String(), w.changes.Load(), w.presented.Load(), time.Duration(w.leftLate.Load()).Round(time.Microsecond),
		w.heldBack.Load(), maxWaiting, w.stalls.max().Round(time.Millisecond))
	for _, s := range w.allSides {
		fmt.Fprintf(&b, "%s: %d exchanges of a budget of %d, %d requests of a budget of %d\n", s.name,
			w.exchanges(s), w.budget(s), w.requests(s), w.exchanges(s)*tries*int64(s.requests)+w.presented.Load())
	}
	return b.String()
}

// tries is how often a provider sends a request at most.
const tries = 3

func (w *world) exchanges(s *side) (n int64) {
	for _, p := range w.phases {
		n += p.of(s).exchanges.Load()
	}
	return n
}

func (w *world) requests(s *side) (n int64) {
	for _, service := range allServices(s) {
		n += int64(w.cloud.Calls(service, ""))
	}
	return n
}

// budget is how many exchanges a cloud's tenants may make: each purpose one at the start and then one whenever three
// quarters of its life have passed; while a fault lasts, as many more as the back-off lets through; and some for each
// change of a tenant.
func (w *world) budget(s *side) int64 {
	var purposes int64
	for _, t := range w.tenants {
		switch {
		case t.side != s:
		case t.usesRegistry():
			purposes += int64(s.purposes)
		default:
			purposes++
		}
	}
	n := purposes
	for _, p := range w.phases {
		life := w.maxDuration
		if p.name == "clock jumps" {
			life = min(life, w.lifeInCache(shortLife))
		}
		n += int64(float64(purposes) * float64(p.took) / (0.75 * float64(life)))
		if p.fault != nil {
			n += purposes * attempts(p.took)
		}
	}
	return n + int64(s.purposes)*w.changes.Load()
}

// attempts is how many exchanges of one key can fail in a time.
func attempts(d time.Duration) (n int64) {
	for wait := time.Second * 9 / 10; d >= 0; wait = min(2*wait, 27*time.Second) {
		d -= wait
		n++
	}
	return n
}

func (w *world) checkBudget(t *testing.T) {
	for _, s := range w.allSides {
		if n, most := w.exchanges(s), w.budget(s); n > most {
			t.Errorf("%s: %d exchanges of a budget of %d", s.name, n, most)
		}
		if n, most := w.requests(s), w.exchanges(s)*tries*int64(s.requests)+w.presented.Load(); n > most {
			t.Errorf("%s: %d requests of a budget of %d", s.name, n, most)
		}
		if w.exchanges(s) == 0 {
			t.Errorf("%s: no exchange was made", s.name)
		}
	}
	if n := w.observer.evicted.Load(); n > 0 {
		t.Errorf("%d credentials had to make room for others", n)
	}
}

// violations are what must not happen, by kind.
type violations struct {
	mu    sync.Mutex
	kinds map[string]*violation
}

type violation struct {
	times    int
	examples []string
}

const maxExamples = 5

func (v *violations) add(kind, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kinds == nil {
		v.kinds = map[string]*violation{}
	}
	k := v.kinds[kind]
	if k == nil {
		k = &violation{}
		v.kinds[kind] = k
	}
	k.times++
	if len(k.examples) < maxExamples {
		k.examples = append(k.examples, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func (v *violations) report(t *testing.T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for kind, k := range v.kinds {
		t.Errorf("%s, %d times:\n\t%s", kind, k.times, strings.Join(k.examples, "\n\t"))
	}
}
