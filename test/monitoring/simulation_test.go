package monitoring_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
)

// length is that of a simulation.
const length = 5 * time.Hour

// load is what a controller does in that time: the cache and its metrics are
// real, time is not.
type load struct {
	tenants int
	// together has all tenants asked for at the same time. Otherwise they come
	// in the course of the first hour.
	together bool
	// every is how often each is asked for, 20 s if it is not set.
	every time.Duration
	// cloud says whose tenant it is. Nil: all are of aws.
	cloud func(tenant int) string
	// namespace is the tenant's. Nil: each has its own.
	namespace func(tenant int) string
	// exchange is what one takes and gives. Nil: all is well.
	exchange func(ctx context.Context, tenant int, at time.Duration) error
	capacity int  // 10,000 if it is not set
	patient  bool // says that callers wait as clients of SDKs do
	options  []cache.Option
}

type credential struct{ ends time.Time }

func (c *credential) GetDuration() time.Duration { return time.Until(c.ends) }

// failure is the result of an exchange that failed.
type failure string

func (f failure) Error() string { return string(f) }

// classify does what package auth does.
func classify(err error) cache.Failure {
	var f failure
	_ = errors.As(err, &f) // another error has no result of its own
	return cache.Failure{Result: string(f), Permanent: f == "denied"}
}

// series plays the load and returns what Prometheus has scraped, a sample a
// minute, in the language of promqltest.
func (l load) series(t *testing.T) string {
	t.Helper()
	var scrapes recording
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m, err := metrics.New(prefix, registry)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := cache.NewTokenCache(l.size(),
			append([]cache.Option{cache.WithObserver(m)}, l.options...)...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		start := time.Now()
		for tenant := range l.tenants {
			running.Go(func() { l.live(ctx, tokens, tenant, start) })
		}
		for minute := range int(length / time.Minute) {
			time.Sleep(time.Until(start.Add(time.Duration(minute)*time.Minute + time.Second)))
			scrapes.add(t, minute, registry)
		}
		cancel()
		tokens.Close()
		running.Wait()
	})
	return scrapes.text(int(length / time.Minute))
}

func (l load) size() int {
	if l.capacity == 0 {
		return 10_000
	}
	return l.capacity
}

// live asks for a tenant's credential until ctx ends.
func (l load) live(ctx context.Context, tokens *cache.TokenCache, tenant int, start time.Time) {
	every, r := l.every, rand.New(rand.NewPCG(uint64(tenant), 4)) //nolint:gosec // the same in each run
	if every == 0 {
		every = 20 * time.Second
	}
	if !l.together && !sleep(ctx, time.Duration(r.Int64N(int64(time.Hour)))) {
		return
	}
	provider := "aws"
	if l.cloud != nil {
		provider = l.cloud(tenant)
	}
	namespace := strconv.Itoa(tenant)
	if l.namespace != nil {
		namespace = l.namespace(tenant)
	}
	req := cache.Request{Key: cache.Key{byte(tenant), byte(tenant >> 8)}, Tenant: namespace, Provider: provider,
		Patient: l.patient, Classify: classify,
		Mint: func(ctx context.Context, _ []cache.Token) (cache.Minted, error) {
			time.Sleep(100 * time.Millisecond)
			if l.exchange != nil {
				if err := l.exchange(ctx, tenant, time.Since(start)); err != nil {
					return cache.Minted{}, err
				}
			}
			return cache.Minted{Token: &credential{time.Now().Add(time.Hour)}}, nil
		}}
	for {
		_, _, _ = tokens.GetOrSet(ctx, req) // the metrics know
		if !sleep(ctx, every) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// recording is the samples of all series by minute.
type recording map[string]map[int]float64

func (r *recording) add(t *testing.T, minute int, registry *prometheus.Registry) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if *r == nil {
		*r = recording{}
	}
	set := func(name string, of *dto.Metric, value float64, more ...string) {
		pairs := append([]string{`job="c"`}, more...)
		for _, l := range of.GetLabel() {
			pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		key := name + "{" + strings.Join(pairs, ",") + "}"
		if (*r)[key] == nil {
			(*r)[key] = map[int]float64{}
		}
		(*r)[key][minute] = value
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			switch h := one.GetHistogram(); {
			case h != nil:
				set(f.GetName()+"_count", one, float64(h.GetSampleCount()))
				set(f.GetName()+"_sum", one, h.GetSampleSum())
				set(f.GetName()+"_bucket", one, float64(h.GetSampleCount()), `le="+Inf"`)
				for _, b := range h.GetBucket() {
					set(f.GetName()+"_bucket", one, float64(b.GetCumulativeCount()), fmt.Sprintf(`le="%v"`, b.GetUpperBound()))
				}
			case one.GetCounter() != nil:
				set(f.GetName(), one, one.GetCounter().GetValue())
			default:
				set(f.GetName(), one, one.GetGauge().GetValue())
			}
		}
	}
}

// text marks series that a scrape no longer has as stale, as Prometheus does.
func (r *recording) text(minutes int) string {
	var b strings.Builder
	b.WriteString("load 1m\n")
	for key, samples := range *r {
		b.WriteString("  " + key)
		seen := false
		for minute := range minutes {
			value, ok := samples[minute]
			switch {
			case ok:
				fmt.Fprintf(&b, " %v", value)
			case seen:
				b.WriteString(" stale")
			default:
				b.WriteString(" _")
			}
			seen = ok
		}
		b.WriteString("\n")
	}
	return b.String()
}
