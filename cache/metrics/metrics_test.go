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
	return cache.Request{Key: cache.Key{n}, Object: object, Provider: "test", Mint: func(context.Context) (cache.Token, error) {
		return &token{time.Now().Add(time.Hour)}, err
	}}
}

func expect(t *testing.T, registry *prometheus.Registry, want string, names ...string) {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(want) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(b.String()), names...); err != nil {
		t.Error(err)
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m, err := metrics.New("gotk_token_", registry)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := cache.NewTokenCache(2, cache.WithObserver(m))
		if err != nil {
			t.Fatal(err)
		}
		defer tokens.Close()
		get := func(n byte, err error) { _, _, _ = tokens.GetOrSet(t.Context(), request(n, err)) }
		get(1, nil)
		tokens.Get(cache.Key{1}, object, 0, time.Time{})
		get(2, nil)
		get(3, nil) // pushes 1 out
		get(4, errors.New("broken"))
		synctest.Wait()
		expect(t, registry, `# HELP gotk_token_cache_events_total Hits and misses of the token cache, by involved object.
			# TYPE gotk_token_cache_events_total counter
			gotk_token_cache_events_total{event_type="cache_hit",kind="Bucket",name="b",namespace="ns",operation="reconcile"} 1
			gotk_token_cache_events_total{event_type="cache_miss",kind="Bucket",name="b",namespace="ns",operation="reconcile"} 4
			# HELP gotk_token_cache_evictions_total Tokens that had to make room for others.
			# TYPE gotk_token_cache_evictions_total counter
			gotk_token_cache_evictions_total 1
			# HELP gotk_token_cache_requests_total Requests to the token cache, by whether they were served.
			# TYPE gotk_token_cache_requests_total counter
			gotk_token_cache_requests_total{status="failure"} 1
			gotk_token_cache_requests_total{status="success"} 4
			# HELP gotk_token_cached_items Tokens in the cache.
			# TYPE gotk_token_cached_items gauge
			gotk_token_cached_items 2
			# HELP gotk_token_cache_exchanges Exchanges that were asked for and have not ended.
			# TYPE gotk_token_cache_exchanges gauge
			gotk_token_cache_exchanges 0
			# HELP gotk_token_cache_waiting_callers Callers that wait for an exchange.
			# TYPE gotk_token_cache_waiting_callers gauge
			gotk_token_cache_waiting_callers 0
			`, "gotk_token_cache_events_total", "gotk_token_cache_evictions_total", "gotk_token_cache_requests_total", "gotk_token_cached_items",
			"gotk_token_cache_exchanges", "gotk_token_cache_waiting_callers")

		time.Sleep(48 * time.Minute)
		get(3, errors.New("broken")) // served, but its refresh fails
		synctest.Wait()
		tokens.Delete(cache.Key{2})
		expect(t, registry, `# HELP gotk_token_cache_refreshes_total Exchanges that renewed a token ahead of time, by result.
			# TYPE gotk_token_cache_refreshes_total counter
			gotk_token_cache_refreshes_total{result="denied"} 0
			gotk_token_cache_refreshes_total{result="error"} 1
			gotk_token_cache_refreshes_total{result="kubernetes_unavailable"} 0
			gotk_token_cache_refreshes_total{result="limited"} 0
			gotk_token_cache_refreshes_total{result="misconfigured"} 0
			gotk_token_cache_refreshes_total{result="panic"} 0
			gotk_token_cache_refreshes_total{result="success"} 0
			gotk_token_cache_refreshes_total{result="throttled"} 0
			gotk_token_cache_refreshes_total{result="timeout"} 0
			gotk_token_cache_refreshes_total{result="unavailable"} 0
			# HELP gotk_token_cache_failing_keys Tokens whose last exchange failed, by provider and result.
			# TYPE gotk_token_cache_failing_keys gauge
			gotk_token_cache_failing_keys{provider="test",result="error"} 1
			# HELP gotk_token_cached_items Tokens in the cache.
			# TYPE gotk_token_cached_items gauge
			gotk_token_cached_items 1
			`, "gotk_token_cache_refreshes_total", "gotk_token_cached_items", "gotk_token_cache_failing_keys")
		tokens.Purge()
		if n, err := testutil.GatherAndCount(registry, "gotk_token_cache_mint_duration_seconds"); err != nil || n != 3 { // success, error and panic
			t.Errorf("%d series of exchanges, %v", n, err)
		}
		expect(t, registry, `# HELP gotk_token_cached_items Tokens in the cache.
			# TYPE gotk_token_cached_items gauge
			gotk_token_cached_items 0
			`, "gotk_token_cached_items")

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

// Exchanges that are running, that wait for a slot and that wait for the rate are counted apart.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m, err := metrics.New("x_", registry)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := cache.NewTokenCache(10, cache.WithObserver(m), cache.WithMaxExchangesPerTenant(2), cache.WithRate(2, 1))
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for n := range 3 {
			req := request(byte(n), nil)
			mint := req.Mint
			req.Mint = func(ctx context.Context) (cache.Token, error) {
				time.Sleep(time.Second / 2)
				return mint(ctx)
			}
			callers.Go(func() { _, _, _ = tokens.GetOrSet(t.Context(), req) })
		}
		synctest.Wait()
		gauges := func(flights, forRate, running, forSlot, waiting int) {
			t.Helper()
			expect(t, registry, fmt.Sprintf(`# HELP x_cache_exchanges Exchanges that were asked for and have not ended.
				# TYPE x_cache_exchanges gauge
				x_cache_exchanges %d
				# HELP x_cache_rate_queued_exchanges Exchanges that wait for the start rate.
				# TYPE x_cache_rate_queued_exchanges gauge
				x_cache_rate_queued_exchanges %d
				# HELP x_cache_running_exchanges Exchanges that are running.
				# TYPE x_cache_running_exchanges gauge
				x_cache_running_exchanges %d
				# HELP x_cache_slot_queued_exchanges Exchanges that wait for a slot of their tenant.
				# TYPE x_cache_slot_queued_exchanges gauge
				x_cache_slot_queued_exchanges %d
				# HELP x_cache_waiting_callers Callers that wait for an exchange.
				# TYPE x_cache_waiting_callers gauge
				x_cache_waiting_callers %d
				`, flights, forRate, running, forSlot, waiting),
				"x_cache_exchanges", "x_cache_rate_queued_exchanges", "x_cache_running_exchanges", "x_cache_slot_queued_exchanges", "x_cache_waiting_callers")
		}
		gauges(3, 1, 1, 1, 3)
		time.Sleep(time.Second / 2)
		synctest.Wait()
		gauges(2, 1, 1, 0, 2)
		callers.Wait()
		synctest.Wait()
		gauges(0, 0, 0, 0, 0)
		tokens.Close()
	})
}

// A hit that meets the deletion of its object's series leaves nothing behind that later hits would vanish in.
func TestHitDuringDeletion(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New("x_", registry)
	if err != nil {
		t.Fatal(err)
	}
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
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	hits := 0
	for _, f := range families {
		for _, series := range f.GetMetric() {
			for _, label := range series.GetLabel() {
				if f.GetName() == "x_cache_events_total" && label.GetValue() == "cache_hit" {
					hits++
				}
			}
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

// names returns the metrics of a registry.
func names(t *testing.T, registry *prometheus.Registry) (all []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		all = append(all, f.GetName())
	}
	return all
}

func TestNamespaceLabel(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New("x_", registry, metrics.WithNamespaceLabel("exported_namespace"))
	if err != nil {
		t.Fatal(err)
	}
	m.Request(object, false, true)
	expect(t, registry, `# HELP x_cache_events_total Hits and misses of the token cache, by involved object.
		# TYPE x_cache_events_total counter
		x_cache_events_total{event_type="cache_miss",exported_namespace="ns",kind="Bucket",name="b",operation="reconcile"} 1
		`, "x_cache_events_total")
	m.DeleteEventsForObject("Bucket", "b", "ns", "reconcile")
	if n, err := testutil.GatherAndCount(registry, "x_cache_events_total"); err != nil || n != 0 {
		t.Errorf("%d series of an object that is gone, %v", n, err)
	}
}

func TestNamespaceLabelIsRefused(t *testing.T) {
	for _, label := range []string{"", "kind", "operation", "no-dash", "__reserved", "1st"} {
		t.Run(label, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			if _, err := metrics.New("x_", registry, metrics.WithNamespaceLabel(label)); err == nil || len(names(t, registry)) > 0 {
				t.Errorf("got %v, and %q are registered", err, names(t, registry))
			}
		})
	}
}

func TestUnregister(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := metrics.New("kept_", registry); err != nil {
		t.Fatal(err)
	}
	before := names(t, registry)
	m, err := metrics.New("x_", registry)
	if err != nil {
		t.Fatal(err)
	}
	m.Unregister()
	m.Request(object, true, true) // a cache still counts
	if after := names(t, registry); !slices.Equal(after, before) {
		t.Errorf("%q are left of %q", after, before)
	}
	if _, err := metrics.New("x_", registry); err != nil {
		t.Errorf("the prefix is not free: %v", err)
	}
}

// A second Unregister removes nothing of a successor with the same prefix.
func TestUnregisterTwiceKeepsTheSuccessor(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New("x_", registry)
	if err != nil {
		t.Fatal(err)
	}
	m.Unregister()
	if _, err := metrics.New("x_", registry); err != nil {
		t.Fatal(err)
	}
	before := names(t, registry)
	m.Unregister()
	if after := names(t, registry); !slices.Equal(after, before) {
		t.Errorf("%q are left of %q", after, before)
	}
}

// The metrics that were registered before the one that fails leave again. The one in the way stays.
func TestFailedRegistrationLeavesNothing(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "x_cached_items", Help: "Another."}))
	if _, err := metrics.New("x_", registry); err == nil {
		t.Fatal("two metrics have the same name")
	}
	if left := names(t, registry); !slices.Equal(left, []string{"x_cached_items"}) {
		t.Errorf("%q are left", left)
	}
}

// A controller whose cache is off has no metrics, and deletes the series of its objects all the same.
func TestNilMetrics(t *testing.T) {
	var m *metrics.Metrics
	tokens, err := cache.NewTokenCache(10, cache.WithObserver(m))
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	if _, _, err := tokens.GetOrSet(t.Context(), request(1, nil)); err != nil {
		t.Error(err)
	}
	m.Refresh("success")
	m.Evicted()
	m.DeleteEventsForObject("Bucket", "b", "n", "reconcile")
	m.Unregister()
}

func BenchmarkHit(b *testing.B) {
	m, err := metrics.New("x_", prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	tokens, err := cache.NewTokenCache(10, cache.WithObserver(m))
	if err != nil {
		b.Fatal(err)
	}
	defer tokens.Close()
	if _, _, err := tokens.GetOrSet(b.Context(), request(1, nil)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		tokens.Get(cache.Key{1}, object, 0, time.Time{})
	}
}
