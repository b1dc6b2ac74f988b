package soak

import (
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// stats are those of a cloud in a phase.
type stats struct {
	calls, hits, exchanges             atomic.Int64
	accessExchanges, shortRenewals     atomic.Int64 // some of exchanges
	failedExchanges, failures          tally
	brokenRequests                     atomic.Int64 // to the cloud, without an answer
	tokenRequests, failedTokenRequests atomic.Int64
	failedReads                        atomic.Int64 // at the API server
	latencies                          histogram
}

func (s *stats) hit(took time.Duration) {
	s.hits.Add(1)
	s.latencies.add(took)
}

// histogram has eight buckets for each doubling, so that a percentile is off by
// an eighth at most.
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
func (w *environment) report() string {
	var b strings.Builder
	var calls int64
	for _, p := range w.phases[1:] {
		for _, s := range w.allSides {
			calls += p.of(s).calls.Load()
		}
	}
	fmt.Fprintf(&b, "\nsoak: %d tenants, %.0f calls a second (%d were meant), %s, credentials kept for %s, seed %d\n\n",
		len(w.tenants), float64(calls)/w.loadTook.Seconds(), *soakRate, w.loadTook.Round(time.Second), w.maxDuration,
		*soakSeed)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "phase\tcloud\tcalls\thits\tTokenRequests\texchanges\tof them failed\t"+
		"p50 of hits\tp99\tcalls that failed")
	for _, p := range w.phases {
		for _, s := range w.allSides {
			x := p.of(s)
			fmt.Fprintf(table, "%s (%s)\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", p.name, p.took.Round(time.Second), s.name,
				x.calls.Load(), x.hits.Load(), x.tokenRequests.Load()+x.failedTokenRequests.Load(), x.exchanges.Load(),
				x.failedExchanges.total(), x.latencies.percentile(50), x.latencies.percentile(99), &x.failures)
		}
	}
	_ = table.Flush() // into memory
	fmt.Fprintf(&b, "\n%s\n%d changes of tenants, %d credentials were used at their service; "+
		"callers that gave up were let go within %s; no caller waited longer than %s while another cloud hung; "+
		"%d calls were left out because %d of their cloud were waiting; "+
		"the machine left this process without a processor for at most %s\n",
		w.observer.String(), w.changes.total(), w.presented.Load(), time.Duration(w.leftLate.Load()).Round(time.Microsecond),
		time.Duration(w.longest.Load()).Round(time.Microsecond),
		w.heldBack.Load(), maxWaiting, w.stalls.max().Round(time.Millisecond))
	fmt.Fprintf(&b,
		"%d calls left an exchange that took too long; of the credentials that good tenants left, %d were served later, "+
			"%d were no longer wanted, %d never came\n", w.leftEarly(), w.early.served, w.early.unwanted, len(w.early.all()))
	for _, s := range w.allSides {
		fmt.Fprintf(&b, "%s: %d exchanges, %d requests\n", s.name, w.exchanges(s), w.requests(s))
	}
	return b.String()
}
