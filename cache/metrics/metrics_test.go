package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type token struct{ expires time.Time }

func (t *token) GetDuration() time.Duration { return time.Until(t.expires) }

var object = cache.InvolvedObject{Kind: "Bucket", Name: "b", Namespace: "ns", Operation: "reconcile"}

func request(n byte, err error) cache.Request {
	return cache.Request{Key: cache.Key{n}, Object: object, Provider: "test",
		Mint: func(context.Context, []cache.Token) (cache.Minted, error) {
			return cache.Minted{Token: &token{time.Now().Add(time.Hour)}}, err
		}}
}

func newMetrics(t testing.TB, prefix string, opts ...metrics.Option) (*metrics.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := metrics.New(prefix, registry, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return m, registry
}

func newCache(t testing.TB, capacity int, m *metrics.Metrics) *cache.TokenCache {
	t.Helper()
	tokens, err := cache.NewTokenCache(capacity, cache.WithObserver(m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	return tokens
}

// samples returns the series of a registry as a scrape shows them, without help
// and type: test/monitoring holds those.
func samples(t *testing.T, registry *prometheus.Registry) (all []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			var labels []string
			for _, l := range series.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			all = append(all, fmt.Sprint(name, " ", series.GetCounter().GetValue()+series.GetGauge().GetValue()))
		}
	}
	return all
}

// expect compares all series of the metrics that are in want.
func expect(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	metric := func(line string) string {
		return strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]
	}
	var wanted, got []string
	for line := range strings.Lines(want) {
		wanted = append(wanted, strings.TrimSpace(line))
	}
	for _, line := range samples(t, registry) {
		if slices.ContainsFunc(wanted, func(w string) bool { return metric(w) == metric(line) }) {
			got = append(got, line)
		}
	}
	if slices.Sort(wanted); !slices.Equal(got, wanted) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newMetrics(t, "gotk_token_")
		tokens := newCache(t, 2, m)
		get := func(n byte, err error) { _, _, _ = tokens.GetOrSet(t.Context(), request(n, err)) }
		get(1, nil)
		tokens.Get(cache.Key{1}, object, 0, time.Time{})
		get(2, nil)
		get(3, nil) // pushes 1 out
		get(4, errors.New("broken"))
		synctest.Wait()
		expect(t, registry, `gotk_token_cache_events_total{event_type="cache_hit",`+
			`kind="Bucket",name="b",namespace="ns",operation="reconcile"} 1
			gotk_token_cache_events_total{event_type="cache_miss",kind="Bucket",name="b",namespace="ns",operation="reconcile"} 4
			gotk_token_cache_evictions_total 1
			gotk_token_cache_requests_total{status="failure"} 1
			gotk_token_cache_requests_total{status="success"} 4
			gotk_token_cached_items 2
			gotk_token_cache_exchanges 0
			gotk_token_cache_waiting_callers 0`)

		time.Sleep(48 * time.Minute)
		get(3, errors.New("broken")) // served, but its refresh fails
		synctest.Wait()
		tokens.Delete(cache.Key{2})
		expect(t, registry, `gotk_token_cache_refreshes_total{result="denied"} 0
			gotk_token_cache_refreshes_total{result="error"} 1
			gotk_token_cache_refreshes_total{result="kubernetes_unavailable"} 0
			gotk_token_cache_refreshes_total{result="limited"} 0
			gotk_token_cache_refreshes_total{result="misconfigured"} 0
			gotk_token_cache_refreshes_total{result="panic"} 0
			gotk_token_cache_refreshes_total{result="success"} 0
			gotk_token_cache_refreshes_total{result="throttled"} 0
			gotk_token_cache_refreshes_total{result="timeout"} 0
			gotk_token_cache_refreshes_total{result="unavailable"} 0
			gotk_token_cache_failing_keys{provider="test",result="error"} 1
			gotk_token_cached_items 1`)
		tokens.Purge()
		// success, error and panic
		if n, err := testutil.GatherAndCount(registry, "gotk_token_cache_mint_duration_seconds"); err != nil || n != 3 {
			t.Errorf("%d series of exchanges, %v", n, err)
		}
		expect(t, registry, `gotk_token_cached_items 0`)

		problems, err := testutil.GatherAndLint(registry)
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v, %v", problems, err)
		}
		m.DeleteEventsForObject("Bucket", "b", "ns", "reconcile")
		if n, err := testutil.GatherAndCount(registry, "gotk_token_cache_events_total"); err != nil || n != 0 {
			t.Errorf("%d series of an object that is gone, %v", n, err)
		}
	})
}

// The gauges are those of Stats.
func TestQueue(t *testing.T) {
	m, registry := newMetrics(t, "x_")
	m.Attach(func() cache.Stats {
		return cache.Stats{Exchanges: 5, QueuedForRate: 1, Running: 2, QueuedForSlot: 3, Waiting: 4}
	})
	expect(t, registry, `x_cache_exchanges 5
		x_cache_rate_queued_exchanges 1
		x_cache_running_exchanges 2
		x_cache_slot_queued_exchanges 3
		x_cache_waiting_callers 4`)
}

// A hit that meets the deletion of its object's series leaves nothing behind
// that later hits would vanish in.
func TestHitDuringDeletion(t *testing.T) {
	m, registry := newMetrics(t, "x_")
	const rounds, callers = 2000, 4
	for n := range rounds {
		o := cache.InvolvedObject{Kind: "Bucket", Namespace: "ns", Name: fmt.Sprint(n), Operation: "reconcile"}
		m.Request(o, false, true) // the series of its miss
		var all sync.WaitGroup
		for range callers {
			all.Go(func() { m.Request(o, true, true) })
		}
		all.Go(func() { m.DeleteEventsForObject(o.Kind, o.Name, o.Namespace, o.Operation) })
		all.Wait()
		m.Request(o, true, true)
	}
	hits := 0
	for _, line := range samples(t, registry) {
		if strings.Contains(line, `"cache_hit"`) {
			hits++
		}
	}
	if hits != rounds {
		t.Errorf("the hits of %d of %d objects are shown", hits, rounds)
	}
}

func TestTwoCachesInOneRegistry(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, prefix := range []string{"a_", "b_", ""} {
		if _, err := metrics.New(prefix, registry); err != nil {
			t.Error(err)
		}
	}
	for _, prefix := range []string{"a_", "no-dash_", "a"} {
		if _, err := metrics.New(prefix, registry); err == nil {
			t.Errorf("prefix %q was accepted", prefix)
		}
	}
}

func TestNamespaceLabel(t *testing.T) {
	m, registry := newMetrics(t, "x_", metrics.WithNamespaceLabel("exported_namespace"))
	m.Request(object, false, true)
	expect(t, registry, `x_cache_events_total{event_type="cache_miss",`+
		`exported_namespace="ns",kind="Bucket",name="b",operation="reconcile"} 1`)
	m.DeleteEventsForObject("Bucket", "b", "ns", "reconcile")
	if n, err := testutil.GatherAndCount(registry, "x_cache_events_total"); err != nil || n != 0 {
		t.Errorf("%d series of an object that is gone, %v", n, err)
	}
}

func TestNamespaceLabelIsRefused(t *testing.T) {
	for _, label := range []string{"", "kind", "operation", "no-dash", "__reserved", "1st"} {
		t.Run(label, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			if _, err := metrics.New("x_", registry, metrics.WithNamespaceLabel(label)); err == nil ||
				len(samples(t, registry)) > 0 {
				t.Errorf("got %v, and %q are registered", err, samples(t, registry))
			}
		})
	}
}

// A second Unregister removes nothing of a successor with the same prefix.
func TestUnregister(t *testing.T) {
	m, registry := newMetrics(t, "x_")
	m.Unregister()
	m.Request(object, true, true) // a cache still counts
	if left := samples(t, registry); left != nil {
		t.Errorf("%q are left", left)
	}
	if _, err := metrics.New("x_", registry); err != nil {
		t.Errorf("the prefix is not free: %v", err)
	}
	before := samples(t, registry)
	m.Unregister()
	if after := samples(t, registry); before == nil || !slices.Equal(after, before) {
		t.Errorf("%q are left of %q", after, before)
	}
}

// The metrics that were registered before the one that fails leave again. The
// one in the way stays.
func TestFailedRegistrationLeavesNothing(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "x_cached_items", Help: "Another."}))
	if _, err := metrics.New("x_", registry); err == nil {
		t.Fatal("two metrics have the same name")
	}
	if left := samples(t, registry); !slices.Equal(left, []string{"x_cached_items 0"}) {
		t.Errorf("%q are left", left)
	}
}

// A controller whose cache is off has no metrics, and deletes the series of its
// objects all the same.
func TestNilMetrics(t *testing.T) {
	var m *metrics.Metrics
	if _, _, err := newCache(t, 10, m).GetOrSet(t.Context(), request(1, nil)); err != nil {
		t.Error(err)
	}
	m.Refresh("success")
	m.Evicted()
	m.DeleteEventsForObject("Bucket", "b", "n", "reconcile")
	m.Unregister()
}

func BenchmarkHit(b *testing.B) {
	m, _ := newMetrics(b, "x_")
	tokens := newCache(b, 10, m)
	if _, _, err := tokens.GetOrSet(b.Context(), request(1, nil)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		tokens.Get(cache.Key{1}, object, 0, time.Time{})
	}
}
