package flux_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	fluxcache "github.com/fluxcd/pkg/cache"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// counters returns the values of the counters of an object, and of the
// requests.
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

// All metrics of fluxcd/pkg/cache have the same names, labels and types. The
// port has more.
func TestMetricNames(t *testing.T) {
	more := []string{
		"gotk_token_cache_exchanges{} GAUGE", "gotk_token_cache_mint_duration_seconds{provider,result} HISTOGRAM",
		"gotk_token_cache_rate_queued_exchanges{} GAUGE", "gotk_token_cache_refreshes_total{result} COUNTER",
		"gotk_token_cache_running_exchanges{} GAUGE", "gotk_token_cache_slot_queued_exchanges{} GAUGE",
		"gotk_token_cache_waiting_callers{} GAUGE",
	}
	got := map[string][]string{}
	for name, start := range versions {
		w := newCloudAndCluster(t)
		synctest.Test(t, func(t *testing.T) {
			c := start(t, w)
			run(t, c.bucket, bucketKey)
			synctest.Wait() // the duration of an exchange is recorded after its end
			got[name] = families(t, c.registry)
		})
	}
	want := slices.Sorted(slices.Values(append(more, got["before"]...)))
	if len(got["before"]) != 4 || !slices.Equal(got["after"], want) {
		t.Errorf("before: %q\nafter: %q", got["before"], got["after"])
	}
}

// A cached access token counts once. Cached registry credentials count twice in
// Flux, which looks up their access token too.
func TestEventCounts(t *testing.T) {
	want := map[string]map[string]float64{
		"before/bucket": {"cache_miss": 1, "cache_hit": 1, "requests": 2},
		"after/bucket":  {"cache_miss": 1, "cache_hit": 1, "requests": 2},
		"before/oci":    {"cache_miss": 2, "cache_hit": 2, "requests": 4},
		"after/oci":     {"cache_miss": 2, "cache_hit": 1, "requests": 3},
	}
	for version, start := range versions {
		bucket, oci := start(t, newCloudAndCluster(t)), start(t, newCloudAndCluster(t))
		for range 2 {
			run(t, bucket.bucket, bucketKey)
			run(t, oci.oci, ociKey)
		}
		if got, want := counters(t, bucket.registry, bucketKey.Name), want[version+"/bucket"]; !maps.Equal(got, want) {
			t.Errorf("%s, bucket: %v, not %v", version, got, want)
		}
		if got, want := counters(t, oci.registry, ociKey.Name), want[version+"/oci"]; !maps.Equal(got, want) {
			t.Errorf("%s, registry: %v, not %v", version, got, want)
		}
	}
}

// The finalizer of a deleted object removes its series, and works with the
// cache off.
func TestFinalizer(t *testing.T) {
	for version, start := range versions {
		for name, flag := range map[string]string{"cache on": "--token-cache-max-size=10",
			"cache off": "--token-cache-max-size=0"} {
			t.Run(version+"/"+name, func(t *testing.T) {
				w := newCloudAndCluster(t)
				c := start(t, w, flag)
				run(t, c.bucket, bucketKey)
				if got := counters(t, c.registry, bucketKey.Name)["cache_miss"]; (got == 1) != (name == "cache on") {
					t.Fatalf("%v misses before the deletion", got)
				}
				bucket := &sourcev1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: bucketKey.Name}}
				if err := w.kube.Delete(t.Context(), bucket); err != nil {
					t.Fatal(err)
				}
				run(t, c.bucket, bucketKey)
				if got := counters(t, c.registry, bucketKey.Name)["cache_miss"]; got != 0 {
					t.Errorf("%v misses after the deletion", got)
				}
				if err := w.kube.Get(t.Context(), bucketKey.NamespacedName, bucket); !apierrors.IsNotFound(err) {
					t.Errorf("the object has not gone: %v", err)
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
