package flux_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	fluxcache "github.com/fluxcd/pkg/cache"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cache/metrics"
)

func gather(t *testing.T, registry *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// families returns the metrics as name{labels} type.
func families(t *testing.T, registry *prometheus.Registry) (all []string) {
	t.Helper()
	for _, f := range gather(t, registry) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		all = append(all, fmt.Sprintf("%s{%s} %s", f.GetName(), strings.Join(labels, ","), f.GetType()))
	}
	return all
}

// counters returns the values of the counters of an object, and of the requests.
func counters(t *testing.T, registry *prometheus.Registry, object string) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, f := range gather(t, registry) {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case f.GetName() == "gotk_token_cache_events_total" && labels["name"] == object:
				values[labels["event_type"]] = m.GetCounter().GetValue()
			case f.GetName() == "gotk_token_cache_requests_total" && labels["status"] == "success":
				values["requests"] = m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// All metrics of fluxcd/pkg/cache have the same names, labels and types. The port has more.
func TestMetricNames(t *testing.T) {
	more := []string{
		"gotk_token_cache_flights{} GAUGE", "gotk_token_cache_mint_duration_seconds{provider,result} HISTOGRAM",
		"gotk_token_cache_rate_queued_flights{} GAUGE", "gotk_token_cache_refreshes_total{result} COUNTER",
		"gotk_token_cache_running_flights{} GAUGE", "gotk_token_cache_slot_queued_flights{} GAUGE", "gotk_token_cache_waiting_callers{} GAUGE",
	}
	got := map[string][]string{}
	for name, start := range versions {
		c := start(t, newCloudAndCluster(t))
		run(t, c.bucket, bucketKey)
		got[name] = families(t, c.registry)
	}
	want := slices.Sorted(slices.Values(append(more, got["before"]...)))
	if len(got["before"]) != 4 || !slices.Equal(got["after"], want) {
		t.Errorf("before: %q\nafter: %q", got["before"], got["after"])
	}
}

// Cached access tokens count alike. Cached registry credentials count twice in Flux, because it looks up their access token too.
func TestEventCounts(t *testing.T) {
	for name, row := range map[string]struct {
		of            func(c *controller) reconciler
		before, after map[string]float64
	}{
		"access token": {bucketOf, map[string]float64{"cache_miss": 1, "cache_hit": 1, "requests": 2}, map[string]float64{"cache_miss": 1, "cache_hit": 1, "requests": 2}},
		"registry":     {ociOf, map[string]float64{"cache_miss": 2, "cache_hit": 2, "requests": 4}, map[string]float64{"cache_miss": 2, "cache_hit": 1, "requests": 3}},
	} {
		for version, want := range map[string]map[string]float64{"before": row.before, "after": row.after} {
			t.Run(name+"/"+version, func(t *testing.T) {
				c := versions[version](t, newCloudAndCluster(t))
				r := row.of(c)
				run(t, r, r.key)
				run(t, r, r.key)
				if got := counters(t, c.registry, r.key.Name); !maps.Equal(got, want) {
					t.Errorf("%v, not %v", got, want)
				}
			})
		}
	}
}

// The finalizer of a deleted object removes its series, and works with the cache off.
func TestFinalizer(t *testing.T) {
	for version, start := range versions {
		for name, flag := range map[string]string{"cache on": "--token-cache-max-size=10", "cache off": "--token-cache-max-size=0"} {
			t.Run(version+"/"+name, func(t *testing.T) {
				w := newCloudAndCluster(t)
				c := start(t, w, flag)
				for _, of := range []func(*controller) reconciler{bucketOf, ociOf} {
					r := of(c)
					run(t, r, r.key)
					if got := counters(t, c.registry, r.key.Name); (got["cache_miss"] > 0) != (name == "cache on") {
						t.Fatalf("before the deletion: %v", got)
					}
					if err := w.kube.Delete(t.Context(), r.object()); err != nil {
						t.Fatal(err)
					}
					run(t, r, r.key)
					if got := counters(t, c.registry, r.key.Name); got["cache_miss"] > 0 {
						t.Errorf("after the deletion: %v", got)
					}
					if err := w.kube.Get(t.Context(), r.key.NamespacedName, r.object()); client.IgnoreNotFound(err) != nil || err == nil {
						t.Errorf("the object still exists: %v", err)
					}
				}
			})
		}
	}
}

// Two caches with one prefix collide: Flux panics, the port returns an error.
func TestTwoCachesWithOnePrefix(t *testing.T) {
	registry := prometheus.NewRegistry()
	newCache := func() (recovered any) {
		defer func() { recovered = recover() }()
		_, err := fluxcache.NewTokenCache(1, fluxcache.WithMetricsRegisterer(registry), fluxcache.WithMetricsPrefix("p_"))
		if err != nil {
			t.Error(err)
		}
		return nil
	}
	if first, second := newCache(), newCache(); first != nil || second == nil {
		t.Errorf("Flux: %v, %v", first, second)
	}
	registry = prometheus.NewRegistry()
	_, first := metrics.New("p_", registry)
	_, second := metrics.New("p_", registry)
	if first != nil || second == nil {
		t.Errorf("workloadid: %v, %v", first, second)
	}
}
